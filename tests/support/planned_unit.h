// One planned unit with memory of its own: what a stage does for many, for tests of single layers.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/zero_policy.h"
#include "parallel/zero/param_store.h"
#include "tensor_parallel/store_views.h"
#include "tensor_parallel/unit_plan.h"
#include "tests/support/tensor_rank.h"

namespace trident::testing {

// `plan` is complete; its parameters become unit `unit` of a store without ZeRO.
class PlannedUnit {
 public:
  PlannedUnit(TensorRank& rank, const UnitPlan& plan, const LogicalTensors& weights)
      : rank_(rank), geometry_(plan.geometry()), memory_(plan.memory()), specs_(plan.params()),
        store_({.policy = policy_of(ZeroPreset::kDdp), .compute = plan.geometry().compute},
                                                   {{0, plan.params()}}, rank.context, arena_plan_) {
    arena_ = std::make_unique<Arena>(arena_plan_, rank.device.allocate(arena_plan_.total_bytes(), "test"));
    store_.bind(*arena_);
    for (std::size_t i = 0; i < specs_.size(); ++i)
      scatter(weight(static_cast<int>(i)), specs_[i], weights, rank.degree(), rank.rank());
    for (std::size_t r = 0; r < kNumRegions; ++r) {
      regions_[r] = rank.device.allocate(plan.region_bytes(static_cast<Region>(r)), "test region");
      // Memory that was not written must not look like zeros.
      if (regions_[r].num_bytes() > 0) std::memset(regions_[r].data(), 0xff, static_cast<std::size_t>(regions_[r].num_bytes()));
      base_[r] = regions_[r].data();
    }
    store_.begin_backward(0, 0, Accumulate::kNo);
  }

  // For one call.
  Pass& pass(PassKind kind) {
    pass_.emplace(PassEnvironment{.ops = rank_.device.ops(),
                                   .stream = rank_.device.compute_stream(),
                                   .tensor = rank_.context.tensor(),
                                   .params = views_,
                                   .geometry = geometry_,
                                   .base = base_,
                                   .workspace_bytes = memory_.region_bytes(Region::kWorkspace)},
                         memory_);
    pass_->begin(kind);
    return *pass_;
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
  LayerGeometry geometry_;
  UnitMemory memory_;
  ArenaPlan arena_plan_;
  std::vector<ParamSpec> specs_;
  ParamStore store_;
  StoreViews views_{store_, 0};
  std::unique_ptr<Arena> arena_;
  std::array<Buffer, kNumRegions> regions_;
  std::array<std::byte*, kNumRegions> base_{};
  std::optional<Pass> pass_;
};

}  // namespace trident::testing
