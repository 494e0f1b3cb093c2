#include "tensor_parallel/regions.h"

#include <cstdint>

namespace trident {

RegionTensor TensorRegion::plan_full(UnitPlan& plan, std::int64_t width) const {
  const LayerGeometry& geometry = plan.geometry();
  return sharded_ ? plan.scratch(geometry.compute, geometry.full_shape(width)) : RegionTensor{};
}

ConstTensorView TensorRegion::enter(const UnitRun& run, ConstTensorView x, TensorView full) const {
  if (!sharded_) return x;
  run.tensor.all_gather(run.stream, full, x);
  return full;
}

void TensorRegion::leave(const UnitRun& run, TensorView y, TensorView full) const {
  if (sharded_) {
    run.tensor.reduce_scatter(run.stream, y, full, ReduceOp::kSum);
  } else {
    run.tensor.all_reduce(run.stream, y, ReduceOp::kSum);
  }
}

KeptGradient::KeptGradient(UnitPlan& plan, std::int64_t width)
    : region_(plan.geometry()),
      full_(plan.keep(plan.geometry().compute, plan.geometry().full_shape(width))),
      first_(plan.geometry().position_offset()),
      rows_(plan.geometry().local_sequence()) {}

ConstTensorView KeptGradient::gather(const UnitRun& run) const { return region_.enter(run, local(run), run.view(full_)); }

}  // namespace trident
