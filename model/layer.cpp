#include <vector>

#include "model/cached_step.h"
#include "model/declare.h"
#include "model/layer.h"

namespace trident {
namespace {

MicroBatch dry_batch(const LayerGeometry& g) {
  MicroBatch batch;
  batch.tokens = batch.targets = batch.positions_by_row = dry_view(DType::kI32, {g.full_rows()});
  batch.positions_by_sample = batch.first_key = batch.first_key_in_window = dry_view(DType::kI32, {g.micro_batch, g.sequence});
  batch.samples = dry_view(DType::kI64, {g.micro_batch});
  batch.loss = dry_view(DType::kF64, {1});
  batch.loss_order = {batch.targets, batch.targets, g.full_rows()};
  return batch;
}

}  // namespace

UnitPlan plan_unit(Layer& layer, const LayerGeometry& geometry, std::int64_t hidden, const ModelConstants& constants, Ops& oracle,
                   int unit, PlannedPasses passes) {
  UnitPlan plan(geometry, oracle, unit);
  layer.declare(plan.param_list());
  const MicroBatch batch = dry_batch(geometry);
  const TensorView x = dry_view(geometry.compute, geometry.activation_shape(hidden));
  plan.run([&](Pass& pass) {
    LayerPass p(pass, batch, constants);
    layer.derive(p);
    layer.forward(p, x, x);
    if (passes == PlannedPasses::kForward) return;
    if (geometry.recompute != RecomputePolicy::kNone) layer.recompute(p, x);
    layer.backward(p, x, x);
    layer.backward_input(p, x, x);  // schedules may split them
    layer.backward_weight(p, layer.input_last_use() == LastUse::kW ? x : TensorView());
  });
  if (passes == PlannedPasses::kAll) plan.check_last_uses();
  return plan;
}

UnitPlan plan_cached_unit(Layer& layer, const LayerGeometry& geometry, const ModelConfig& config, CacheCapacities capacities,
                          const ModelConstants& constants, Ops& oracle, int unit) {
  TRIDENT_CHECK(!geometry.shards_sequence(), "a cached pass of unit {} under sequence parallelism", unit);
  UnitPlan plan(geometry, oracle, unit);
  layer.declare(plan.param_list());
  const std::int64_t B = geometry.micro_batch;
  const std::vector<std::int64_t> first(static_cast<std::size_t>(B), 0), count(static_cast<std::size_t>(B), 1);
  const bool windowed = capacities.window > 0 && unit > 0 && unit <= config.layers && config.slides(unit - 1);
  const Shape kept{B, local_kv_heads(config, geometry.tensor_degree), windowed ? capacities.window : capacities.all,
                   config.head_dim};
  const LayerCache cache{dry_view(geometry.compute, kept), dry_view(geometry.compute, kept)};
  const std::vector<LayerCache> caches(static_cast<std::size_t>(unit) + 1, cache);
  const CachedStep step{{capacities.all, first}, {capacities.window, first}, count, caches,
                        dry_view(DType::kF32, {B, padded_vocabulary(config, geometry.tensor_degree) / geometry.tensor_degree})};
  MicroBatch batch = dry_batch(geometry);
  batch.training = false;
  batch.cached = &step;
  const TensorView x = dry_view(geometry.compute, geometry.activation_shape(config.hidden));
  plan.run([&](Pass& pass) {
    LayerPass p(pass, batch, constants);
    layer.derive(p);
    layer.forward(p, x, x);
  });
  return plan;
}

}  // namespace trident
