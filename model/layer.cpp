#include <cstdint>

#include "model/layer.h"

namespace trident {
namespace {

MicroBatch dry_batch(const LayerGeometry& g) {
  MicroBatch batch;
  batch.tokens = batch.targets = batch.positions_by_row = dry_view(DType::kI32, {g.full_rows()});
  batch.positions_by_sample = dry_view(DType::kI32, {g.micro_batch, g.sequence});
  batch.samples = dry_view(DType::kI64, {g.micro_batch});
  batch.loss = dry_view(DType::kF64, {1});
  return batch;
}

}  // namespace

UnitPlan plan_unit(Layer& layer, const LayerGeometry& geometry, std::int64_t hidden, const ModelConstants& constants, Ops& oracle,
                   int unit) {
  UnitPlan plan(geometry, oracle, unit);
  layer.declare(plan.param_list());
  const MicroBatch batch = dry_batch(geometry);
  const TensorView x = dry_view(geometry.compute, geometry.activation_shape(hidden));
  plan.run([&](Pass& pass) {
    LayerPass p(pass, batch, constants);
    layer.forward(p, x, x);
    if (geometry.recompute != RecomputePolicy::kNone) layer.recompute(p, x);
    layer.backward(p, x, x);
    layer.backward_input(p, x, x);  // schedules may split them
    layer.backward_weight(p, layer.input_last_use() == LastUse::kW ? x : TensorView());
  });
  return plan;
}

}  // namespace trident
