// One planned unit with memory of its own: what a stage does for many, for tests of single layers.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/zero_policy.h"
#include "parallel/param_store.h"
#include "tensor_parallel/layer_plan.h"
#include "tests/support/tensor_rank.h"

namespace trident::testing {

// `plan` is complete; its parameters become unit `unit` of a store without ZeRO.
class PlannedUnit {
 public:
  PlannedUnit(TensorRank& rank, const UnitPlan& plan, const LogicalTensors& weights)
      : rank_(rank), specs_(plan.params()), store_({.policy = policy_of(ZeroPreset::kDdp), .compute = plan.geometry().compute},
                                                   {{0, plan.params()}}, rank.context, arena_plan_) {
    arena_ = std::make_unique<Arena>(arena_plan_, rank.device.allocate(arena_plan_.total_bytes(), "test"));
    store_.bind(*arena_);
    for (std::size_t i = 0; i < specs_.size(); ++i)
      scatter(weight(static_cast<int>(i)), specs_[i], weights, rank.degree(), rank.rank());
    for (std::size_t r = 0; r < kNumRegions; ++r) {
      regions_[r] = rank.device.allocate(plan.region_bytes(static_cast<Region>(r)), "test region");
      // What was not written must not look like zeros.
      if (regions_[r].num_bytes() > 0) std::memset(regions_[r].data(), 0xff, static_cast<std::size_t>(regions_[r].num_bytes()));
      base_[r] = regions_[r].data();
    }
    workspace_bytes_ = plan.region_bytes(Region::kWorkspace);
    store_.begin_backward(0, 0, Accumulate::kNo);
  }

  UnitRun run() {
    return {rank_.device.ops(), rank_.device.compute_stream(), rank_.context.tensor(), store_, 0, base_, workspace_bytes_,
            MemoryKind::kHost};
  }
  TensorView weight(int param) const {
    const ConstTensorView view = store_.weight(0, param);
    return {const_cast<std::byte*>(view.data()), view.dtype(), view.shape()};
  }
  ParamStore& store() { return store_; }
  void collect(GradientCollector& collector) const {
    for (std::size_t i = 0; i < specs_.size(); ++i) collector.add(rank_.rank(), specs_[i], store_.grad(0, static_cast<int>(i)));
  }

 private:
  TensorRank& rank_;
  ArenaPlan arena_plan_;
  std::vector<ParamSpec> specs_;
  ParamStore store_;
  std::unique_ptr<Arena> arena_;
  std::array<Buffer, kNumRegions> regions_;
  std::array<std::byte*, kNumRegions> base_{};
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace trident::testing
