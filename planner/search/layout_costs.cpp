#include "planner/search/layout_costs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/check.h"
#include "core/int_math.h"
#include "pipeline/schedule/step_program_views.h"
#include "planner/search/layout_record.h"

namespace trident {
namespace {

PassKey pass_key(const SearchLayout& layout) {
  return {layout.tensor, layout.sequence_parallel, layout.micro, layout.recompute, layout.context};
}

int stride_of(const ProcessGrid& grid, Axis axis) {
  GridCoordinates at;
  if (axis == Axis::kTensor) at.tensor = 1;
  if (axis == Axis::kContext) at.context = 1;
  if (axis == Axis::kData) at.data = 1;
  if (axis == Axis::kPipeline) at.pipeline = 1;
  return grid.degree(axis) > 1 ? grid.rank(at) : 0;
}

PassWork work_of(const PassRecord& pass, const ProcessGrid& grid, const WorkPrices& prices) {
  const TimeParts parts = price_pass(pass, grid, prices);
  PassWork work;
  work.seconds = parts.total() - parts[TimePart::kLaunch];
  for (const auto& call : pass.calls) {
    if (const auto* const operation = std::get_if<RecordedOperation>(&call)) work.issue += prices.issue_seconds(*operation);
  }
  return work;
}

}  // namespace

std::vector<std::string> layout_settings(const SearchLayout& layout) {
  return {fmt::format("parallel={}DP x {}PP x {}TP", layout.data, layout.pipeline, layout.tensor),
          fmt::format("parallel.context={}", layout.context),
          fmt::format("parallel.sequence_parallel={}", layout.sequence_parallel),
          fmt::format("parallel.virtual_stages={}", layout.virtual_stages),
          fmt::format("parallel.schedule={}", to_string(layout.schedule)),
          fmt::format("parallel.zero={}", to_string(layout.zero)),
          fmt::format("parallel.grad_sync={}", layout.sync == SyncChoice::kStep ? "step" : "null"),
          "parallel.param_gather=null",
          "parallel.layers=null",
          fmt::format("batch.micro={}", layout.micro),
          fmt::format("recompute.policy={}", to_string(layout.recompute))};
}

TrainConfig with_layout(const TrainConfig& config, const SearchLayout& layout) {
  TrainConfig changed = config;
  ParallelConfig& parallel = changed.parallel;
  parallel.data.ranks = layout.data;
  parallel.context = layout.context;
  parallel.pipeline = layout.pipeline;
  parallel.tensor = layout.tensor;
  parallel.sequence_parallel = layout.sequence_parallel;
  parallel.virtual_stages = layout.virtual_stages;
  parallel.schedule = layout.schedule;
  parallel.zero = layout.zero;
  parallel.grad_sync = {};
  if (layout.sync == SyncChoice::kStep) parallel.grad_sync.kind = GradSync::Kind::kStep;
  parallel.param_gather.reset();
  parallel.layers.reset();
  changed.batch.micro = layout.micro;
  changed.recompute.policy = layout.recompute;
  return changed;
}

LayoutCosts::LayoutCosts(const TrainConfig& config, const ModelConfig& model, const MachineFacts& machine, Ops* oracle,
                         const WorkPrices& prices)
    : prices_(prices), units_(config, model, machine, oracle), schedules_(config.parallel.overlap) {}

int LayoutCosts::micro_batches(const SearchLayout& layout) const {
  return checked_cast<int>(units_.config().batch.global / (layout.micro * layout.data));
}

ProcessGrid LayoutCosts::grid(const SearchLayout& layout) const {
  return ProcessGrid({layout.tensor, layout.context, layout.data, layout.pipeline}, units_.config().parallel.order);
}

const LayoutCosts::Stages& LayoutCosts::stages(const SearchLayout& layout) {
  const std::scoped_lock lock(mutex_);
  const auto [found, is_new] = stages_.try_emplace({layout.pipeline, layout.virtual_stages, layout.micro});
  if (is_new) {
    BatchConfig batch = units_.config().batch;
    batch.micro = layout.micro;
    found->second.of_stage = partition_balanced(unit_costs(units_.model(), batch), layout.pipeline, layout.virtual_stages);
    found->second.of_rank = units_by_rank(found->second.of_stage, layout.pipeline, units_.num_units() - 1);
  }
  return found->second;
}

const std::vector<RankUnits>& LayoutCosts::units(const SearchLayout& layout) { return stages(layout).of_rank; }

// ---- memory --------------------------------------------------------------------------------------------------------------------

LayoutMemoryInputs LayoutCosts::memory_inputs(const SearchLayout& layout) {
  const int m = micro_batches(layout);
  const TrainConfig& config = units_.config();
  return {.passes = units_.passes(pass_key(layout)),
          .buckets = units_.buckets(layout.tensor, layout.sequence_parallel, layout.data_shard_ranks()),
          .schedule = schedules_.facts({layout.schedule, layout.pipeline, layout.virtual_stages, m}),
          .policy = layout.policy(),
          .compute = units_.compute(),
          .optimizer_states = units_.optimizer_states(),
          .overlap = config.parallel.overlap,
          .tied = units_.model().tie_embeddings,
          .data = layout.data_shard_ranks(),
          .pipeline = layout.pipeline,
          .chunks = layout.virtual_stages,
          .micro_batches = m,
          .micro = layout.micro,
          .sequence = config.batch.sequence / layout.context,
          .ring_bytes = ring_bytes(layout)};
}

std::vector<ArenaMemory> LayoutCosts::memory(const SearchLayout& layout) {
  const LayoutMemoryInputs in = memory_inputs(layout);
  const std::vector<RankUnits>& units = stages(layout).of_rank;
  std::vector<ArenaMemory> ranks;
  for (int rank = 0; rank < layout.pipeline; ++rank)
    ranks.push_back(rank_memory(in, units[static_cast<std::size_t>(rank)], rank));
  return ranks;
}

LayoutCosts::Worst LayoutCosts::worst_memory(const SearchLayout& layout) {
  const LayoutMemoryInputs in = memory_inputs(layout);
  const std::vector<RankUnits>& units = stages(layout).of_rank;
  Worst worst;
  for (int rank = 0; rank < layout.pipeline; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    // A rank with the units and the buffers of the one before it needs as much.
    if (rank > 0 && units[r] == units[r - 1] && in.schedule.ranks[r].slots == in.schedule.ranks[r - 1].slots &&
        in.schedule.ranks[r].activation_receives <= in.schedule.ranks[r - 1].activation_receives &&
        in.schedule.ranks[r].gradient_receives <= in.schedule.ranks[r - 1].gradient_receives &&
        in.schedule.ranks[r].successions == in.schedule.ranks[r - 1].successions)
      continue;
    const ArenaMemory memory = rank_memory(in, units[r], rank);
    if (memory.total() > worst.memory.total()) worst = {rank, memory};
  }
  return worst;
}

// ---- time ----------------------------------------------------------------------------------------------------------------------

StoreKey LayoutCosts::store_key(const SearchLayout& layout, bool on_use) const {
  const ZeroPolicy policy = layout.policy();
  return {layout.tensor, layout.sequence_parallel, layout.data_shard_ranks(), layout.pipeline == 1, policy.shard_optimizer,
          policy.grad_sync_every > 0, on_use};
}

const LayoutCosts::PricedPasses& LayoutCosts::priced_passes(const SearchLayout& layout, const ProcessGrid& grid) {
  const UnitPasses& passes = units_.passes(pass_key(layout));
  const std::scoped_lock lock(mutex_);
  const auto [found, is_new] =
      priced_passes_.try_emplace({pass_key(layout), stride_of(grid, Axis::kTensor), stride_of(grid, Axis::kContext)});
  PricedPasses& priced = found->second;
  if (!is_new) return priced;
  const auto work = [&](const PassRecord& pass) { return work_of(pass, grid, prices_); };
  for (const UnitKind kind : kUnitKinds) {
    priced.forward[kind] = work(passes.forward[kind]);
    priced.first_backward[kind] = work(passes.first_backward[kind]);
    priced.backward[kind] = work(passes.backward[kind]);
  }
  if (layout.context > 1) share_attention(layout, grid, priced);
  priced.copy = work(passes.copy);
  priced.outside = work(passes.outside).time();
  return priced;
}

// Keys and values of a rank's part of the sequences.
std::int64_t LayoutCosts::ring_bytes(const SearchLayout& layout) const {
  if (layout.context == 1) return 0;
  const ModelConfig& model = units_.model();
  const std::int64_t rows = units_.config().batch.sequence / layout.context * layout.micro;
  return 2 * rows * std::max(model.kv_width() / layout.tensor, model.head_dim) * size_of(units_.compute());
}

// An estimate of context parallelism: a rank's queries meet the keys of all parts, which go round in a ring, unhidden: for each
// forward of attention once, also where it is done again, and for its backward with their gradients.
void LayoutCosts::share_attention(const SearchLayout& layout, const ProcessGrid& grid, PricedPasses& priced) {
  const UnitPasses& passes = units_.passes(pass_key(layout));
  RecordedCollective message{.axis = Axis::kContext, .group = "cp", .size = layout.context, .operation = CommOperation::kSend};
  message.operand_bytes = ring_bytes(layout);
  const double ring = prices_.seconds(message, place_of(message, grid));
  const auto rest = [&](const PassRecord& pass, int rings) {
    double seconds = 0;
    for (const auto& call : pass.calls) {
      const auto* const operation = std::get_if<RecordedOperation>(&call);
      if (operation == nullptr || !std::holds_alternative<AttentionShape>(operation->shape)) continue;
      seconds += prices_.device_seconds(*operation);
      if (operation->recomputed) ++rings;
    }
    return (seconds + rings * ring) * (layout.context - 1);
  };
  priced.forward[UnitKind::kBlock].seconds += rest(passes.forward[UnitKind::kBlock], 1);
  priced.backward[UnitKind::kBlock].seconds += rest(passes.backward[UnitKind::kBlock], 2);
  priced.first_backward[UnitKind::kBlock].seconds += rest(passes.first_backward[UnitKind::kBlock], 2);
}

// An estimate of hybrid sharding: what a group has reduced is summed over the groups.
double LayoutCosts::between_groups(const SearchLayout& layout, const ProcessGrid& grid,
                                   const std::vector<BucketSize>& buckets) const {
  const int groups = layout.data * layout.context / layout.data_shard_ranks();
  if (groups == 1) return 0;
  std::int64_t elements = 0;
  for (const BucketSize& bucket : buckets) elements += layout.policy().shard_optimizer ? bucket.shard : bucket.elements;
  RecordedCollective sum{.axis = Axis::kData, .group = "dp", .size = groups, .operation = CommOperation::kAllReduce};
  sum.operand_bytes = elements * size_of(DType::kF32);
  GroupPlace place = place_of(sum, grid);
  place.stride *= layout.data_shard_ranks();
  return prices_.seconds(sum, place);
}

// Ranks that share sequences share parameters, too: one axis of both.
const LayoutCosts::PricedStores& LayoutCosts::priced_stores(const SearchLayout& layout, bool on_use) {
  const ProcessGrid grid({layout.tensor, 1, layout.data * layout.context, layout.pipeline}, units_.config().parallel.order);
  const StoreKey key = store_key(layout, on_use);
  const StorePasses& stores = units_.stores(key);
  const std::scoped_lock lock(mutex_);
  const auto [found, is_new] =
      priced_stores_.try_emplace({key, stride_of(grid, Axis::kTensor), stride_of(grid, Axis::kData), layout.pipeline});
  PricedStores& priced = found->second;
  if (!is_new) return priced;
  const auto work = [&](const PassRecord& pass) { return work_of(over_pipeline(pass, layout.pipeline), grid, prices_); };
  for (const UnitKind kind : kUnitKinds) {
    const UnitStore& unit = stores.units[kind];
    priced.units[kind] = {.gather = work(unit.gather).time(),
                          .reduce = work(unit.reduce).time(),
                          .gaps = work(unit.gaps),
                          .first_finish = work(unit.first_finish),
                          .finish = work(unit.finish),
                          .partial = work(unit.partial),
                          .norm = work(unit.norm),
                          .update = work(unit.update)};
  }
  priced.tie_embedding = work(stores.tie_embedding);
  priced.tie_head = work(stores.tie_head);
  priced.norm = work(stores.norm);
  return priced;
}

ClosedFormInputs LayoutCosts::closed_form(const SearchLayout& layout) {
  const ProcessGrid grid = this->grid(layout);
  const PricedPasses& passes = priced_passes(layout, grid);
  const LayoutMemoryInputs memory = memory_inputs(layout);
  const std::vector<RankUnits>& units = stages(layout).of_rank;
  const ZeroPolicy policy = layout.policy();
  ClosedFormInputs in;
  in.schedules = &schedules_;
  in.schedule = {layout.schedule, layout.pipeline, layout.virtual_stages, static_cast<int>(memory.micro_batches)};
  in.copy = passes.copy;
  in.message = layout.pipeline > 1 ? work_of(over_pipeline(memory.passes.send, layout.pipeline), grid, prices_).time() : 0;
  in.sync_every = policy.grad_sync_every;
  in.overlap = memory.overlap;
  in.slowdown = prices_.slowdown();
  in.tied_over_ranks = memory.tied && layout.pipeline > 1;
  in.outside = passes.outside + prices_.step_seconds();
  RankPlaces before;
  for (int rank = 0; rank < layout.pipeline; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const bool like_before = rank > 1 && rank + 1 < layout.pipeline && units[r] == units[r - 1];
    const std::vector<RankFacts>& facts = memory.schedule.ranks;
    const bool same_places = like_before && facts[r].successions == facts[r - 1].successions;
    const RankPlaces places = same_places ? before : rank_places(memory, units[r], rank);
    if (!like_before || places != before) in.ranks.push_back(rank_times(layout, grid, passes, memory, units[r], places, rank));
    in.rank_of.push_back(static_cast<int>(in.ranks.size()) - 1);
    before = places;
  }
  return in;
}

LayoutCosts::RankPlaces LayoutCosts::rank_places(const LayoutMemoryInputs& memory, const RankUnits& units, int rank) {
  if (memory.policy.param_gather != ParamGather::kPerUse && memory.policy.grad_sync_every != 1) return {};
  return {rank_gathers_on_use(memory, units, rank), rank_gradient_region(memory, units, rank)};
}

RankTimes LayoutCosts::rank_times(const SearchLayout& layout, const ProcessGrid& grid, const PricedPasses& passes,
                                  const LayoutMemoryInputs& memory, const RankUnits& units, const RankPlaces& places, int rank) {
  const ZeroPolicy& policy = memory.policy;
  RankTimes times;
  times.gathers_on_use = places.gathers_on_use;
  times.gradient_region = places.gradient_region;
  const PricedStores& stores = priced_stores(layout, times.gathers_on_use);
  times.gathers_after_update = memory.data > 1 && policy.shard_optimizer && !times.gathers_on_use;
  PassWork norm = stores.norm;
  for (const UnitKind kind : kUnitKinds) {
    const PricedUnit& unit = stores.units[kind];
    times.units[kind] = {.forward = passes.forward[kind],
                         .first_backward = passes.first_backward[kind],
                         .backward = passes.backward[kind],
                         .gaps = unit.gaps,
                         .first_finish = unit.first_finish,
                         .finish = unit.finish,
                         .gather = unit.gather,
                         .reduce = unit.reduce + between_groups(layout, grid, memory.buckets[kind]),
                         .update = unit.update.time(),
                         .gradient_bytes = unit_gradient_bytes(memory, kind)};
    for (const ChunkUnits& chunk : units) norm += (unit.norm + unit.partial) * chunk.count(kind);
  }
  times.norm = norm.time();
  if (rank == 0) times.tie = stores.tie_embedding.time();
  if (rank > 0 && rank + 1 == layout.pipeline) times.tie = stores.tie_head.time();
  if (layout.pipeline == 1 && memory.tied) times.norm = (norm + stores.tie_embedding).time();
  for (const ChunkUnits& chunk : units) {
    ChunkTimes& of = times.chunks.emplace_back();
    if (chunk.embedding) of.kinds.push_back(UnitKind::kEmbedding);
    of.kinds.insert(of.kinds.end(), static_cast<std::size_t>(chunk.blocks), UnitKind::kBlock);
    if (chunk.head) of.kinds.push_back(UnitKind::kHead);
    of.receives = !chunk.embedding;
    of.receives_gradient = !chunk.head;
  }
  return times;
}

RecordedStep LayoutCosts::step(const SearchLayout& layout, int micro_batches) {
  return step(layout, micro_batches, build_step_programs);
}

RecordedStep LayoutCosts::looked_at_step(const SearchLayout& layout, int micro_batches) {
  return step(layout, micro_batches, build_programs_for_pricing);
}

RecordedStep LayoutCosts::step(const SearchLayout& layout, int micro_batches, BuildPrograms build) {
  const TrainConfig config = with_layout(units_.config(), layout);
  const ZeroPolicy policy = layout.policy();
  StepProgramSpec spec;
  spec.units_of_stage = stages(layout).of_stage;
  spec.schedule = make_schedule(layout.schedule, layout.pipeline, layout.virtual_stages,
                                micro_batches > 0 ? micro_batches : this->micro_batches(layout));
  spec.zero = policy;
  spec.data_parallel = layout.data * layout.context;
  spec.tie = units_.model().tie_embeddings ? EmbeddingTie::kTied : EmbeddingTie::kUntied;
  spec.overlap = config.parallel.overlap ? Overlap::kOn : Overlap::kOff;
  const LayoutMemoryInputs memory = memory_inputs(layout);
  for (int unit = 0; unit < units_.num_units(); ++unit) {
    const UnitKind kind = unit == 0 ? UnitKind::kEmbedding : unit + 1 == units_.num_units() ? UnitKind::kHead : UnitKind::kBlock;
    spec.unit_bytes.push_back(unit_bytes_of(memory, kind));
  }
  RecordedStep step{grid(layout), spec.overlap, build(spec), {}};
  for (const StepProgram& program : step.programs) {
    const StorePasses& stores = units_.stores(store_key(layout, program.gathers_on_use));
    step.records.push_back(make_record(program, spec, memory.passes, stores, layout.pipeline));
  }
  return step;
}

}  // namespace trident
