#include "planner/search/unit_stores.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>

#include "core/check.h"
#include "core/function_ref.h"
#include "core/int_math.h"
#include "device/dry/dry_device.h"
#include "model/gpt.h"
#include "optim/sharded_optimizer.h"
#include "optim/step_statistics.h"
#include "parallel/communicator/dry_communicator.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_store.h"
#include "train/plan/step_recorder.h"

namespace trident {
namespace {

constexpr int kUpdate = 1;
constexpr int kPlace = 0;
constexpr std::array<std::int64_t, kMostCounts> kNoCounts{};

int number_of(UnitKind kind, const ModelConfig& model) {
  return kind == UnitKind::kEmbedding ? 0 : kind == UnitKind::kBlock ? 1 : head_unit(model);
}

WeightRounding rounding_of(const TrainConfig& config) {
  return config.precision.stochastic_rounding ? WeightRounding::kStochastic : WeightRounding::kNearest;
}

// Some units of one rank, without layers.
class DryStore {
 public:
  DryStore(const StoreKey& key, const UnitCosts& in, Ops* oracle, std::span<const UnitKind> kinds, int stage)
      : model_(in.model()),
        cuda_(in.config().cuda),
        num_counts_(in.config().num_counts()),
        weighs_(in.config().loss.weighs_rows()),
        recorder_(Interning::kOff),
        device_(oracle),
        grid_({key.tensor, 1, key.data, key.both_ends ? 1 : 2}, in.config().parallel.order),
        layout_{key.tensor, key.sequence_parallel},
        partial_(partial_axes(in.model(), layout_)),
        context_(grid_, device_, make_dry_world(grid_.rank({.pipeline = stage}), grid_.world_size(), &recorder_), partial_,
                 CollectiveChecks::kOff),
        store_(store_config(key, in, kinds), params(kinds), context_, plan_),
        statistics_(context_, plan_),
        optimizer_(in.config().optimizer, rounding_of(in.config()), store_, context_, plan_),
        arena_(plan_, device_.allocate(plan_.total_bytes(), "a unit")) {
    device_.watch(recorder_, recorder_);
    optimizer_.bind(arena_);
    statistics_.bind(arena_);
    store_.bind(arena_);
  }

  UnitStore run(UnitKind kind, const StoreKey& key) {
    const int unit = number_of(kind, model_);
    const auto backward = [&] { store_.begin_backward(unit, kPlace, Accumulate::kNo); };
    UnitStore passes;
    passes.gaps = record(backward);
    const std::size_t gaps = passes.gaps.calls.size();
    passes.reduce = record([&] { store_.reduce(unit, !key.per_window); });
    if (key.per_window) {
      passes.first_finish = without_last(record(backward), gaps);
      record([&] { store_.reduce(unit, false); });
      passes.finish = without_last(record(backward), gaps);
      passes.tied_call = tied_call(unit, key);
      record([&] { store_.reduce(unit, true); });
    }
    passes.partial = record([&] { store_.wait_reduced(); });
    if (key.per_window) {  // it finishes the last window first
      auto& calls = passes.partial.calls;
      calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(passes.finish.calls.size()));
    }
    const std::vector<ParamShard> shards = shards_of(unit);
    passes.norm = without_last(record([&] { statistics_.reduce(shards, {}, counts()); }), norm().calls.size());
    passes.update = record([&] { device_.run_capturable([&] { optimizer_.step(unit, kUpdate, 1e-3, 1); }); });
    if (key.data > 1 && key.sharded) passes.gather = record([&] { store_.gather(unit, kPlace); });
    if (key.on_use) store_.free(unit, kPlace);
    return passes;
  }

  PassRecord tie(int peer) {
    return record([&] { store_.exchange_tied(peer); });
  }

  // As a trainer counts.
  std::span<const std::int64_t> counts() const { return std::span(kNoCounts).first(num_counts_); }
  PassRecord count() {
    if (num_counts_ == 0) return {};
    return record([&] {
      sum_over_batch(context_, 0);
      if (weighs_) sum_over_batch(context_, 0);
    });
  }

  // The norm's cost beside the sums of squares of each unit.
  PassRecord norm() {
    ParamShard nothing = store_.shards().front();
    nothing.counts_in_norm = false;
    return record([&] { statistics_.reduce({&nothing, 1}, {}, counts()); });
  }

 private:
  static PassRecord without_last(PassRecord pass, std::size_t count) {
    TRIDENT_CHECK(pass.calls.size() >= count, "a pass of {} calls without {}", pass.calls.size(), count);
    pass.calls.resize(pass.calls.size() - count);
    return pass;
  }

  // Every call is in one of these: what was called outside would be found in the next.
  PassRecord record(FunctionRef<void()> calls) {
    recorder_.begin(nothing_, cuda_);
    calls();
    return std::move(recorder_.finish().passes.front());
  }

  // Buckets are added in their order.
  int tied_call(int unit, const StoreKey& key) const {
    int calls = 0;
    const std::vector<ParamSpec> specs = trident::unit_params(model_, layout_, unit);
    for (const BucketLayout& bucket : make_buckets(specs, key.tensor, key.data, store_.config().bucket_bytes)) {
      if (bucket.tie != TiedEnd::kNone) return calls;
      if (bucket.trainable) ++calls;
    }
    return -1;
  }

  std::vector<ParamShard> shards_of(int unit) const {
    std::vector<ParamShard> shards;
    for (const ParamShard& shard : store_.shards())
      if (shard.unit == unit) shards.push_back(shard);
    return shards;
  }

  std::vector<UnitParams> params(std::span<const UnitKind> kinds) const {
    std::vector<UnitParams> list;
    for (const UnitKind kind : kinds) {
      const int unit = number_of(kind, model_);
      list.push_back({unit, trident::unit_params(model_, layout_, unit)});
    }
    return list;
  }

  ParamStoreConfig store_config(const StoreKey& key, const UnitCosts& in, std::span<const UnitKind> kinds) const {
    ParamStoreConfig config;
    config.policy.shard_optimizer = key.sharded;
    config.policy.grad_sync_every = key.per_window ? 1 : 0;
    config.policy.param_gather = key.on_use ? ParamGather::kPerUse : ParamGather::kResident;
    config.compute = in.compute();
    config.bucket_bytes = static_cast<std::int64_t>(in.config().parallel.bucket_mb * 1e6);
    config.seed = static_cast<std::uint64_t>(in.config().run.seed);
    std::int64_t most = 0;
    for (const UnitParams& unit : params(kinds)) {
      std::int64_t elements = 0;
      for (const BucketLayout& bucket : make_buckets(unit.specs, key.tensor, key.data, config.bucket_bytes))
        elements += bucket.elements;
      most = std::max(most, elements);
    }
    if (key.on_use) config.gather_bytes = round_up(most * size_of(in.compute()), kArenaAlignment);
    if (key.per_window) config.grad_bytes = round_up(most * size_of(DType::kF32), kArenaAlignment);
    return config;
  }

  const ModelConfig& model_;
  const CudaOptions cuda_;
  const std::size_t num_counts_;
  const bool weighs_;
  const StepProgram nothing_;
  StepRecorder recorder_;
  DryDevice device_;
  ProcessGrid grid_;
  TensorLayout layout_;
  std::vector<SubAxis> partial_;
  ArenaPlan plan_;
  ParallelContext context_;
  ParamStore store_;
  StatisticsReducer statistics_;
  ShardedOptimizer optimizer_;
  Arena arena_;
};

}  // namespace

StorePasses run_unit_stores(const StoreKey& key, const UnitCosts& costs, Ops* oracle) {
  StorePasses passes;
  const bool tied = costs.model().tie_embeddings;
  if (key.both_ends) {
    DryStore all(key, costs, oracle, kUnitKinds, 0);
    for (const UnitKind kind : kUnitKinds) passes.units[kind] = all.run(kind, key);
    if (tied) passes.tie_embedding = all.tie(0);
    passes.norm = all.norm();
    passes.count = all.count();
    return passes;
  }
  for (const UnitKind kind : kUnitKinds) {
    const int stage = kind == UnitKind::kHead ? 1 : 0;
    DryStore one(key, costs, oracle, {&kind, 1}, stage);
    passes.units[kind] = one.run(kind, key);
    if (tied && kind == UnitKind::kEmbedding) passes.tie_embedding = one.tie(1);
    if (tied && kind == UnitKind::kHead) passes.tie_head = one.tie(0);
    if (kind == UnitKind::kBlock) passes.norm = one.norm(), passes.count = one.count();
  }
  return passes;
}

}  // namespace trident
