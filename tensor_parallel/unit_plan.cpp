#include "tensor_parallel/unit_plan.h"

#include <algorithm>
#include <bit>

#include "core/at.h"
#include "core/check.h"
#include "device/dry/dry_device.h"
#include "parallel/communicator/dry_communicator.h"

namespace trident {
namespace {

// Each lies by itself, far from the others.
std::byte* dry_address(int number) { return std::bit_cast<std::byte*>(std::int64_t{number + 1} << 56); }
constexpr int kWeights = kNumRegions, kGradients = kNumRegions + 1, kOutside = kNumRegions + 2;

class DryParams final : public ParamViews {
 public:
  DryParams(const std::vector<ParamSpec>& specs, const LayerGeometry& geometry, Accumulate mode)
      : specs_(specs), tensor_degree_(geometry.tensor_degree), compute_(geometry.compute), mode_(mode) {}

  ConstTensorView weight(int param) const override { return view(kWeights, param, compute_); }
  bool trains(int param) const override { return at(specs_, param).trainable; }
  TensorView grad(int param) const override { return view(kGradients, param, DType::kF32); }
  Accumulate grad_mode() const override { return mode_; }

 private:
  TensorView view(int address, int param, DType dtype) const {
    return {dry_address(address), dtype, local_shape(at(specs_, param), tensor_degree_), MemoryKind::kDevice};
  }

  const std::vector<ParamSpec>& specs_;
  int tensor_degree_;
  DType compute_;
  Accumulate mode_;
};

}  // namespace

void UnitPlan::run(FunctionRef<void(Pass&)> calls) {
  if (!std::ranges::all_of(params_.specs(), &ParamSpec::trainable)) {
    UnitMemory as_declared;
    run_dry(calls, as_declared);
    memory_.weight_gradient_reads = std::move(as_declared.weight_gradient_reads);
    memory_.backward_reads = std::move(as_declared.backward_reads);
    memory_.held_as_read = true;
  }
  run_dry(calls, memory_);
}

void UnitPlan::run_dry(FunctionRef<void(Pass&)> calls, UnitMemory& memory) {
  DryOps ops(&oracle_, DryOps::Announced::kOnUse);
  DryStream stream("compute");
  const std::unique_ptr<Communicator> tensor = make_dry_world(geometry_.tensor_rank, geometry_.tensor_degree);
  for (const Accumulate mode : {Accumulate::kNo, Accumulate::kYes}) {
    const DryParams params(params_.specs(), geometry_, mode);
    PassEnvironment place{.ops = ops,
                    .stream = stream,
                    .tensor = *tensor,
                    .params = params,
                    .geometry = geometry_,
                    .unit = unit_,
                    .where = MemoryKind::kDevice};
    for (int region = 0; region < kNumRegions; ++region) at(place.base, region) = dry_address(region);
    Pass pass(place, &memory);
    calls(pass);
    pass.end();
  }
  std::int64_t& workspace = at(memory.bytes, Region::kWorkspace);
  workspace = std::max(workspace, ops.largest_workspace());
}

void UnitPlan::check_last_uses() const {
  for (const auto& [handle, tensor] : memory_.places) {
    const bool kept = tensor.region == Region::kKept;
    if (kept && memory_.held_as_read) continue;  // between the two calls of a frozen weight
    if (!kept && tensor.region != Region::kSavedForW && tensor.region != Region::kRecomputedForW) continue;
    const auto name = [&] { return kept ? static_cast<const BetweenIW*>(handle)->name : static_cast<const Saved*>(handle)->name; };
    TRIDENT_CHECK(std::ranges::find(memory_.weight_gradient_reads, handle) != memory_.weight_gradient_reads.end(),
                  "unit {}: {} is held for backward_weight, which does not read it; {}", unit_, name(),
                  kept ? "take scratch instead" : "declare it LastUse::kB");
  }
}

TensorView dry_view(DType dtype, const Shape& shape) { return {dry_address(kOutside), dtype, shape, MemoryKind::kDevice}; }

}  // namespace trident
