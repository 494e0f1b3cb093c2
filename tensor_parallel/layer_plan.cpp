#include "tensor_parallel/layer_plan.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/int_math.h"

namespace trident {
namespace {

// Appends a tensor to a region that grows and never shrinks.
RegionTensor append(Region region, std::int64_t& top, DType dtype, Shape shape) {
  const RegionTensor tensor{region, top, dtype, shape};
  top = round_up(top + tensor.num_bytes(), kArenaAlignment);
  return tensor;
}

bool remade(RecomputePolicy policy, RecomputeClass recompute) {
  switch (policy) {
    case RecomputePolicy::kNone: return false;
    case RecomputePolicy::kSelective: return recompute == RecomputeClass::kAttention;
    case RecomputePolicy::kFull: return recompute != RecomputeClass::kNever;
  }
  return false;
}

}  // namespace

ParamId ParamList::add(ParamSpec spec) {
  specs_.push_back(std::move(spec));
  return {static_cast<int>(specs_.size()) - 1};
}

RegionTensor UnitPlan::save(DType dtype, Shape shape, RecomputeClass recompute) {
  return noted(remade(geometry_.recompute, recompute) ? append(Region::kRecomputed, recomputed_, dtype, shape)
                                                      : append(Region::kSaved, saved_, dtype, shape));
}

RegionTensor UnitPlan::keep(DType dtype, Shape shape) { return noted(append(Region::kKept, kept_, dtype, shape)); }

RegionTensor UnitPlan::scratch(DType dtype, Shape shape) {
  return noted({Region::kScratch, scratch_.take(shape.num_elements() * size_of(dtype)).offset, dtype, shape});
}

RegionTensor UnitPlan::noted(const RegionTensor& tensor) {
  RegionTensor& largest = largest_[static_cast<std::size_t>(tensor.region)];
  if (largest.shape.rank() == 0 || tensor.num_bytes() > largest.num_bytes()) largest = tensor;
  return tensor;
}

void UnitPlan::announce(const MatmulShape& shape, Epilogue epilogue) {
  workspace_ = std::max(workspace_, epilogue == Epilogue::kNone ? ops_.prepare_matmul(shape) : ops_.prepare_fused(shape, epilogue));
}

void UnitPlan::matmul(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose tb, Accumulate accumulate,
                      Epilogue epilogue) {
  announce({m, n, k, ta, tb, geometry_.compute, geometry_.compute, accumulate}, epilogue);
}

void UnitPlan::weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k, Epilogue epilogue) {
  for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes})
    announce({m, n, k, Transpose::kYes, Transpose::kNo, geometry_.compute, DType::kF32, accumulate}, epilogue);
}

void UnitPlan::attention(const AttentionShape& shape) { workspace_ = std::max(workspace_, ops_.attention_workspace(shape)); }

std::int64_t UnitPlan::region_bytes(Region region) const {
  switch (region) {
    case Region::kSaved: return saved_;
    case Region::kRecomputed: return recomputed_;
    case Region::kKept: return kept_;
    case Region::kScratch: return scratch_.high_water();
    case Region::kWorkspace: return workspace_;
  }
  return 0;
}

}  // namespace trident
