#include "planner/search/unit_costs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <variant>

#include "core/check.h"
#include "core/function_ref.h"
#include "core/int_math.h"
#include "device/dry/dry_device.h"
#include "model/config/model_stats.h"
#include "model/gpt.h"
#include "model/layer.h"
#include "model/model_constants.h"
#include "optim/sharded_optimizer.h"
#include "optim/step_statistics.h"
#include "parallel/communicator/dry_communicator.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_store.h"
#include "train/plan/step_recorder.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

using Kind = InstructionKind;

// Three blocks in three stages: one with an embedding before it, one with a head behind it.
constexpr int kStages = 3;

TrainConfig tiny_config(const TrainConfig& config, const PassKey& key) {
  TrainConfig tiny = config;
  tiny.parallel.tensor = key.tensor;
  tiny.parallel.sequence_parallel = key.sequence_parallel;
  tiny.parallel.data = 1;
  tiny.parallel.context = 1;
  tiny.parallel.pipeline = kStages;
  tiny.parallel.virtual_stages = 1;
  tiny.parallel.schedule = ScheduleKind::k1f1b;
  tiny.parallel.zero = ZeroPreset::kZero1;
  tiny.parallel.grad_sync = {};
  tiny.parallel.param_gather.reset();
  tiny.parallel.layers.reset();
  tiny.batch.micro = key.micro;
  tiny.batch.sequence = config.batch.sequence / key.context;
  tiny.batch.global = 2 * key.micro;  // the first overwrites gradients, the second adds to them
  tiny.recompute.policy = key.recompute;
  return tiny;
}

// Where some layers slide, all do here, in a window in which a token sees what it sees of the model's layers on average.
ModelConfig tiny_model(const ModelConfig& model, std::int64_t sequence) {
  ModelConfig tiny = model;
  tiny.layers = kStages;
  tiny.sliding_layers.clear();
  if (model.sliding_layers.empty() || model.sliding_window >= sequence) return tiny;
  double seen = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    seen += seen_share(model, layer, sequence) / static_cast<double>(model.layers);
  const double s = static_cast<double>(sequence), twice = 2 * s + 1;  // seen = w (2 s - w + 1) / (s (s + 1))
  const double window = (twice - std::sqrt(std::max(twice * twice - 4 * seen * s * (s + 1), 0.0))) / 2;
  tiny.sliding_window = std::clamp<std::int64_t>(std::llround(window), 1, sequence - 1);  // the model's hides something, too
  return tiny;
}

// The first unit of the kind.
int number_of(UnitKind kind, const ModelConfig& model) {
  return kind == UnitKind::kEmbedding ? 0 : kind == UnitKind::kBlock ? 1 : head_unit(model);
}

// Without the first `count` calls.
PassRecord without(PassRecord pass, std::size_t count) {
  TRIDENT_CHECK(pass.calls.size() >= count, "a pass of {} calls without {}", pass.calls.size(), count);
  pass.calls.erase(pass.calls.begin(), pass.calls.begin() + static_cast<std::ptrdiff_t>(count));
  return pass;
}

class TinyStep {
 public:
  TinyStep(const RunPlan& plan, Ops* oracle) : plan_(plan) {
    for (int stage = 0; stage < kStages; ++stage) {
      const int rank = plan.grid.rank({.pipeline = stage});
      records_.push_back(record_step(plan, rank, oracle, DryWork::kStep, Interning::kOn, &dry_.emplace_back()));
    }
  }
  PassRecord find(int stage, Kind kind, int unit, int micro_batch) const {
    const auto s = static_cast<std::size_t>(stage);
    const std::vector<Instruction>& list = plan_.step_programs[s].instructions;
    const auto wanted = [&](const Instruction& i) { return i.kind == kind && i.unit == unit && i.micro_batch == micro_batch; };
    const auto found = std::find_if(list.begin(), list.end(), wanted);
    TRIDENT_CHECK(found != list.end(), "a tiny step without an instruction of unit {}, micro-batch {}", unit, micro_batch);
    return records_[s].pass(static_cast<std::size_t>(found - list.begin()));
  }
  const PassRecord& outside(int stage) const { return at(records_, stage).passes.front(); }
  std::int64_t saved(int stage) const { return at(dry_, stage).blocks.front().saved; }

 private:
  const RunPlan& plan_;
  std::vector<DryRun> dry_;
  std::vector<StepRecord> records_;
};

// How many stretches of a unit's gradients belong to no parameter: ParamStore clears each before the first backward.
std::size_t num_gaps(const UnitLayout& unit) {
  std::size_t gaps = 0;
  for (const BucketLayout& bucket : unit.buckets) {
    std::int64_t end = 0;
    for (const BucketLayout::Entry& entry : bucket.entries) {
      if (entry.offset > end) ++gaps;
      end = entry.offset + entry.elements();
    }
    if (bucket.elements > end) ++gaps;
  }
  return gaps;
}

void plan_memory(const RunPlan& plan, Ops* oracle, UnitPasses& passes) {
  const LayerGeometry geometry = plan.geometry(0);
  ArenaPlan constants_plan;
  const ModelConstants constants(plan.model, geometry, constants_plan);
  passes.constants = constants_plan.total_bytes();
  const std::int64_t elements = geometry.activation_shape(plan.model.hidden).num_elements();
  passes.activation = round_up(elements * size_of(plan.compute), kArenaAlignment);
  DryOps ops(oracle);
  for (const UnitKind kind : kUnitKinds) {
    const int unit = number_of(kind, plan.model);
    const std::unique_ptr<Layer> layer = make_unit(plan.model, unit);
    const UnitPlan dry = plan_unit(*layer, geometry, plan.model.hidden, constants, ops, unit);
    for (std::size_t r = 0; r < kNumRegions; ++r) passes.regions[kind][r] = dry.region_bytes(static_cast<Region>(r));
  }
}

// An estimate of context parallelism: a rank's queries meet the keys of all parts, which go round in a ring, unhidden: for each
// forward of attention once, also where it is done again, and for its backward with their gradients.
void share_attention(PassRecord& pass, int rings, const PassKey& key, std::int64_t ring_bytes) {
  PassRecord part;  // what each other part of the sequence takes
  for (const auto& call : pass.calls) {
    const auto* const operation = std::get_if<RecordedOperation>(&call);
    if (operation == nullptr || !std::holds_alternative<AttentionShape>(operation->shape)) continue;
    part.calls.push_back(*operation);
    if (operation->recomputed) ++rings;
  }
  const RecordedCollective message{
      .axis = Axis::kData, .group = "cp", .size = key.context, .operation = CommOperation::kSend, .operand_bytes = ring_bytes};
  part.calls.insert(part.calls.end(), static_cast<std::size_t>(rings), message);
  for (int other = 1; other < key.context; ++other) pass.calls.insert(pass.calls.end(), part.calls.begin(), part.calls.end());
}

// An estimate of hybrid sharding: what a group has reduced is summed over the groups.
void sum_over_groups(PassRecord& reduce, const StoreKey& key) {
  RecordedCollective sum{.axis = Axis::kData,
                         .group = fmt::format("dp[{}:{}]", key.groups, key.data),
                         .size = key.groups,
                         .operation = CommOperation::kAllReduce};
  for (const auto& call : reduce.calls) {
    if (const auto* const collective = std::get_if<RecordedCollective>(&call))
      sum.operand_bytes += collective->operand_bytes / (key.sharded ? key.data : 1);
  }
  reduce.calls.push_back(sum);
}

}  // namespace

UnitCosts::UnitCosts(const TrainConfig& config, const ModelConfig& model, const MachineFacts& machine, Ops* oracle)
    : config_(config), model_(model), machine_(machine), oracle_(oracle) {
  PassKey smallest;
  const RunPlan plan = make_run_plan(tiny_config(config_, smallest), tiny_model(model_, config_.batch.sequence), 0, machine_);
  compute_ = plan.compute;
  leaves_rows_out_ = plan.leaves_rows_out;
}

UnitPasses UnitCosts::make_passes(const PassKey& key) const {
  const RunPlan plan = make_run_plan(tiny_config(config_, key), tiny_model(model_, config_.batch.sequence), 0, machine_);
  const TinyStep step(plan, oracle_);
  const int head = head_unit(plan.model);
  const auto gaps = [&](int unit) { return num_gaps(at(plan.units, unit)); };
  UnitPasses passes;
  // Stage 0: the embedding has no input, and its block's comes from this rank. Stage 2: the same with gradients.
  const auto first = [&](int stage, int unit) { return without(step.find(stage, Kind::kBackward, unit, 0), gaps(unit)); };
  const auto second = [&](int stage, int unit) { return step.find(stage, Kind::kBackward, unit, 1); };
  passes.forward = {step.find(0, Kind::kForward, 0, 0), step.find(0, Kind::kForward, 1, 0), step.find(2, Kind::kForward, head, 0)};
  passes.first_backward = {first(0, 0), first(2, 3), first(2, head)};
  passes.backward = {second(0, 0), second(2, 3), second(2, head)};
  PassRecord received = step.find(1, Kind::kForward, 2, 0);
  received.calls.resize(received.calls.size() - passes.forward[UnitKind::kBlock].calls.size());
  passes.copy = std::move(received);
  passes.send = step.find(0, Kind::kSendActivation, Instruction::kNone, 0);
  passes.outside = step.outside(0);
  passes.saved = {step.saved(0) - step.saved(1), step.saved(1), step.saved(2) - step.saved(1)};
  plan_memory(plan, oracle_, passes);
  if (key.context == 1) return passes;
  passes.ring = 2 * plan.config.batch.sequence * key.micro * std::max(model_.kv_width() / key.tensor, model_.head_dim) *
                size_of(compute_);
  share_attention(passes.forward[UnitKind::kBlock], 1, key, passes.ring);
  share_attention(passes.first_backward[UnitKind::kBlock], 2, key, passes.ring);
  share_attention(passes.backward[UnitKind::kBlock], 2, key, passes.ring);
  return passes;
}

template <class Map, class Make>
const typename Map::mapped_type& UnitCosts::once(Map& made, const typename Map::key_type& key, Make make) {
  const std::scoped_lock lock(mutex_);
  const auto found = made.find(key);
  return found != made.end() ? found->second : made.emplace(key, make()).first->second;
}

const UnitPasses& UnitCosts::passes(const PassKey& key) {
  return once(passes_, key, [&] { return ++dry_runs_, make_passes(key); });
}

const StorePasses& UnitCosts::stores(const StoreKey& key) {
  return once(stores_, key, [&] { return ++dry_runs_, make_stores(key); });
}

const StoreMemory& UnitCosts::store_memory(StoreKey key) {
  key.groups = 1;  // sums over groups take no memory
  return once(store_memory_, key, [&] { return make_store_memory(key); });
}

const ByUnitKind<UnitLayout>& UnitCosts::units(int tensor, bool sequence_parallel, int data) {
  return once(units_, {tensor, sequence_parallel, data}, [&] { return lay_out(tensor, sequence_parallel, data); });
}

ByUnitKind<UnitLayout> UnitCosts::lay_out(int tensor, bool sequence_parallel, int data) const {
  ByUnitKind<UnitLayout> units;
  for (const UnitKind kind : kUnitKinds)
    units[kind] = lay_out_unit(model_, {tensor, sequence_parallel}, data, config_.parallel.bucket_mb, number_of(kind, model_));
  return units;
}

namespace {

constexpr int kUpdate = 1;
constexpr int kPlace = 0;
constexpr std::array<std::int64_t, kMostCounts> kNoCounts{};

WeightRounding rounding_of(const TrainConfig& config) {
  return config.precision.stochastic_rounding ? WeightRounding::kStochastic : WeightRounding::kNearest;
}

// Some units of one rank, without layers.
class DryStore {
 public:
  DryStore(const StoreKey& key, const UnitCosts& in, Ops* oracle, std::span<const UnitKind> kinds, int stage)
      : cuda_(in.config().cuda),
        num_counts_(in.config().num_counts()),
        weighs_(in.config().loss.weighs_rows()),
        recorder_(Interning::kOff),
        device_(oracle),
        grid_({key.tensor, 1, key.data, key.both_ends ? 1 : 2}, in.config().parallel.order),
        partial_(partial_axes(in.model(), {key.tensor, key.sequence_parallel})),
        context_(grid_, device_, make_dry_world(grid_.rank({.pipeline = stage}), grid_.world_size(), &recorder_), partial_,
                 CollectiveChecks::kOff),
        units_(in.lay_out(key.tensor, key.sequence_parallel, key.data)),
        store_(store_config(key, in, kinds), params(kinds), context_, plan_),
        statistics_(context_, plan_),
        optimizer_(in.config().optimizer, rounding_of(in.config()), store_, context_, plan_),
        arena_(plan_, device_.allocate(plan_.total_bytes(), "a unit")) {
    device_.watch(recorder_, recorder_);
    optimizer_.bind(arena_);
    statistics_.bind(arena_);
    store_.bind(arena_);
  }

  void add_memory(std::span<const UnitKind> kinds, StoreMemory& memory) const {
    for (const UnitKind kind : kinds) {
      memory.units[kind] = ArenaMemory(plan_, fmt::format("unit {} ", units_[kind].unit));
      memory.units[kind][MemoryUse::kCommunication] = plan_.total_bytes(MemoryUse::kCommunication);  // of a tied weight's other end
    }
    memory.statistics = plan_.total_bytes(MemoryUse::kWorkspace);
  }

  UnitStore run(UnitKind kind, const StoreKey& key) {
    const int unit = units_[kind].unit;
    const auto backward = [&] { store_.begin_backward(unit, kPlace, Accumulate::kNo); };
    UnitStore passes;
    passes.gaps = record(backward);
    const std::size_t gaps = passes.gaps.calls.size();
    passes.reduce = record([&] { store_.reduce(unit, !key.per_window); });
    if (key.per_window) {
      passes.first_finish = without_last(record(backward), gaps);
      record([&] { store_.reduce(unit, false); });
      passes.finish = without_last(record(backward), gaps);
      passes.tied_call = tied_call(units_[kind]);
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
  static int tied_call(const UnitLayout& unit) {
    int calls = 0;
    for (const BucketLayout& bucket : unit.buckets) {
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
    for (const UnitKind kind : kinds) list.push_back({units_[kind].unit, units_[kind].specs});
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
    for (const UnitKind kind : kinds) most = std::max(most, units_[kind].elements());
    if (key.on_use) config.gather_bytes = round_up(most * size_of(in.compute()), kArenaAlignment);
    if (key.per_window) config.grad_bytes = round_up(most * size_of(DType::kF32), kArenaAlignment);
    return config;
  }

  const CudaOptions cuda_;
  const std::size_t num_counts_;
  const bool weighs_;
  const StepProgram nothing_;
  StepRecorder recorder_;
  DryDevice device_;
  ProcessGrid grid_;
  std::vector<SubAxis> partial_;
  ArenaPlan plan_;
  ParallelContext context_;
  ByUnitKind<UnitLayout> units_;
  ParamStore store_;
  StatisticsReducer statistics_;
  ShardedOptimizer optimizer_;
  Arena arena_;
};

// Calls `use` with a store of all units, or with one of each kind, and the kinds that it has.
template <class F>
void for_each_store(const StoreKey& key, const UnitCosts& costs, Ops* oracle, F&& use) {
  const std::size_t at_once = key.both_ends ? kNumUnitKinds : 1;
  for (std::size_t first = 0; first < kNumUnitKinds; first += at_once) {
    const auto kinds = std::span<const UnitKind>(kUnitKinds).subspan(first, at_once);
    DryStore store(key, costs, oracle, kinds, kinds.front() == UnitKind::kHead ? 1 : 0);
    use(store, kinds);
  }
}

}  // namespace

StorePasses UnitCosts::make_stores(const StoreKey& key) const {
  StorePasses passes;
  for_each_store(key, *this, oracle_, [&](DryStore& store, auto kinds) {
    for (const UnitKind kind : kinds) passes.units[kind] = store.run(kind, key);
    const bool first = kinds.front() == UnitKind::kEmbedding, last = kinds.front() == UnitKind::kHead;
    if (model_.tie_embeddings && first) passes.tie_embedding = store.tie(key.both_ends ? 0 : 1);
    if (model_.tie_embeddings && last) passes.tie_head = store.tie(0);
    if (kinds.size() > 1 || kinds.front() == UnitKind::kBlock) passes.norm = store.norm(), passes.count = store.count();
  });
  if (key.groups > 1)
    for (const UnitKind kind : kUnitKinds) sum_over_groups(passes.units[kind].reduce, key);
  return passes;
}

StoreMemory UnitCosts::make_store_memory(const StoreKey& key) const {
  StoreMemory memory;
  for_each_store(key, *this, oracle_, [&](const DryStore& store, auto kinds) { store.add_memory(kinds, memory); });
  return memory;
}

std::int64_t ArenaMemory::total() const { return std::accumulate(by_use.begin(), by_use.end(), std::int64_t{0}); }

ArenaMemory::ArenaMemory(const ArenaPlan& plan, std::string_view prefix) {
  for (const ArenaPlan::Entry& entry : plan.entries())
    if (entry.name.starts_with(prefix)) (*this)[entry.use] += round_up(entry.slot.bytes, kArenaAlignment);
}

void ArenaMemory::add(const ArenaMemory& other, std::int64_t times) {
  for (const MemoryUse use : kMemoryUses) (*this)[use] += other[use] * times;
}

}  // namespace trident
