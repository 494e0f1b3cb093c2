#include "planner/search/layout_costs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/at.h"
#include "core/check.h"
#include "core/int_math.h"
#include "device/dry/dry_device.h"
#include "infer/generate/eval_samples.h"
#include "parallel/communicator/dry_communicator.h"
#include "parallel/grid/parallel_context.h"
#include "pipeline/cached_stage.h"
#include "pipeline/schedule/step_program.h"
#include "pipeline/schedule/step_waits.h"
#include "planner/predict/cluster_forecast.h"
#include "train/run/batch_buffers.h"

namespace trident {
namespace {

using Kind = InstructionKind;

void append(PassRecord& pass, const PassRecord& more) { pass.calls.insert(pass.calls.end(), more.calls.begin(), more.calls.end()); }

// The pass with its calls along the pipeline over `pipeline` ranks.
PassRecord over_pipeline(PassRecord pass, int pipeline) {
  for (auto& call : pass.calls) {
    auto* const collective = std::get_if<RecordedCollective>(&call);
    if (collective == nullptr || collective->axis != Axis::kPipeline || collective->size == pipeline) continue;
    // A message is sent whole; a sum over n ranks sends 2 (n-1)/n of it.
    collective->sent_bytes_times_n = collective->operation == CommOperation::kAllReduce
                                         ? 2 * (pipeline - 1) * collective->operand_bytes
                                         : collective->sent_bytes_times_n / collective->size * pipeline;
    collective->size = pipeline;
  }
  return pass;
}

// Puts a rank's record together from what single units call: equal in every price to the record of its dry run. Follows the
// program as its ParamStore does: which reductions a backward has to add before it overwrites their memory.
class Recorder {
 public:
  Recorder(const StepProgram& program, const StepProgramSpec& spec, const UnitPasses& passes, const StorePasses& stores,
           int pipeline)
      : program_(program),
        spec_(spec),
        passes_(passes),
        stores_(stores),
        pipeline_(pipeline),
        has_accumulated_(program.unit_bytes.size(), false) {
    record_.passes.push_back(passes.outside);
    if (std::ranges::find(program.units, spec.head_unit()) != program.units.end()) append(record_.passes.front(), stores.count);
  }

  StepRecord run() {
    record_.pass_of.reserve(program_.instructions.size());
    for (const Instruction& i : program_.instructions) record_.pass_of.push_back(pass_of(i));
    return std::move(record_);
  }

 private:
  // Passes of this rank differ by these: instruction, unit kind, whether it overwrites, copies, and the reductions that it adds.
  using Key = std::tuple<Kind, UnitKind, bool, bool, std::vector<std::pair<UnitKind, bool>>>;
  struct Pending {
    int unit = 0;
    GradientPlace place;
  };

  UnitKind kind_of(int unit) const {
    return unit == 0 ? UnitKind::kEmbedding : unit == spec_.head_unit() ? UnitKind::kHead : UnitKind::kBlock;
  }
  const std::vector<int>& units_of(const Instruction& i) const {
    return at(spec_.units_of_stage, i.virtual_stage);
  }

  std::int32_t pass_of(const Instruction& i) {
    Key key{i.kind, i.unit >= 0 ? kind_of(i.unit) : UnitKind::kBlock, false, false, {}};
    auto& [kind, unit, overwrites, copies, finished] = key;
    if (i.kind == Kind::kForward) copies = i.unit == units_of(i).front() && i.virtual_stage > 0;
    if (i.kind == Kind::kBackward) {
      overwrites = i.overwrites();
      copies = i.unit == units_of(i).back() && i.unit != spec_.head_unit();
      if (overwrites) finish(i, finished);
    }
    if (i.kind == Kind::kReduceGradients && spec_.zero.grad_sync_every > 0)
      pending_.push_back({i.unit, gradient_place(program_, i)});
    if (i.kind == Kind::kGradNorm) finish_all(finished);
    if (i.kind == Kind::kTieExchange) has_exchanged_ = true;
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<std::int32_t>(record_.passes.size()));
    if (is_new) record_.passes.push_back(make(key, i));
    return found->second;
  }

  void finish(const Instruction& i, std::vector<std::pair<UnitKind, bool>>& finished) {
    const GradientPlace mine = gradient_place(program_, i);
    const auto met = [&](const Pending& p) {
      if (p.unit != i.unit && !p.place.meets(mine)) return false;
      add(p, finished);
      return true;
    };
    std::erase_if(pending_, met);
    std::sort(finished.begin(), finished.end());
  }
  void finish_all(std::vector<std::pair<UnitKind, bool>>& finished) {
    for (const Pending& p : pending_) add(p, finished);
    pending_.clear();
  }
  void add(const Pending& p, std::vector<std::pair<UnitKind, bool>>& finished) {
    finished.emplace_back(kind_of(p.unit), at(has_accumulated_, p.unit));
    at(has_accumulated_, p.unit) = true;
  }

  PassRecord make(const Key& key, const Instruction& i) const {
    const auto& [kind, unit, overwrites, copies, finished] = key;
    PassRecord pass;
    for (const auto& [of, again] : finished) {
      PassRecord added = again ? stores_.units[of].finish : stores_.units[of].first_finish;
      const int tied = stores_.units[of].tied_call;
      // That one came before the exchange.
      if (kind == Kind::kGradNorm && has_exchanged_ && tied >= 0) added.calls.erase(added.calls.begin() + tied);
      append(pass, added);
    }
    if (kind == Kind::kTieExchange) append_tied(pass);
    if (overwrites) append(pass, stores_.units[unit].gaps);
    if (copies) append(pass, passes_.copy);
    switch (kind) {
      case Kind::kForward: append(pass, passes_.forward[unit]); break;
      case Kind::kBackward: append(pass, overwrites ? passes_.first_backward[unit] : passes_.backward[unit]); break;
      case Kind::kSendActivation:
      case Kind::kSendGradient: append(pass, passes_.send); break;
      case Kind::kGather: append(pass, stores_.units[unit].gather); break;
      case Kind::kReduceGradients: append(pass, stores_.units[unit].reduce); break;
      case Kind::kOptimizerStep: append(pass, stores_.units[unit].update); break;
      case Kind::kTieExchange: append(pass, program_.rank == 0 ? stores_.tie_embedding : stores_.tie_head); break;
      case Kind::kGradNorm: append_norm(pass); break;
      default: break;
    }
    TRIDENT_CHECK(kind != Kind::kBackwardInput && kind != Kind::kBackwardWeight, "a split backward of unit {}", i.unit);
    return over_pipeline(std::move(pass), pipeline_);
  }

  // The exchange adds what is pending of the tied weight; the rest of its units waits for the norm.
  void append_tied(PassRecord& pass) const {
    for (const Pending& p : pending_) {
      const UnitStore& unit = stores_.units[kind_of(p.unit)];
      if (unit.tied_call < 0) continue;
      const PassRecord& added = at(has_accumulated_, p.unit) ? unit.finish : unit.first_finish;
      pass.calls.push_back(at(added.calls, unit.tied_call));
    }
  }

  void append_norm(PassRecord& pass) const {
    for (const int u : program_.units) {
      append(pass, stores_.units[kind_of(u)].partial);
      append(pass, stores_.units[kind_of(u)].norm);
    }
    append(pass, stores_.norm);
  }

  const StepProgram& program_;
  const StepProgramSpec& spec_;
  const UnitPasses& passes_;
  const StorePasses& stores_;
  int pipeline_;
  bool has_exchanged_ = false;
  std::vector<bool> has_accumulated_;
  std::vector<Pending> pending_;
  std::map<Key, std::int32_t> numbers_;
  StepRecord record_;
};

using Config = const TrainConfig&;
using Layout = const SearchLayout&;
struct LayoutKey {
  std::string_view path;
  bool (*is_same)(Config config, Layout layout);  // nullptr: every layout has its own value
};
constexpr LayoutKey kLayoutKeys[] = {
    {"parallel.data", [](Config c, Layout l) { return c.parallel.data == l.data; }},
    {"parallel.pipeline", [](Config c, Layout l) { return c.parallel.pipeline == l.pipeline; }},
    {"parallel.tensor", [](Config c, Layout l) { return c.parallel.tensor == l.tensor; }},
    {"parallel.sequence_parallel", [](Config c, Layout l) { return c.parallel.sequence_parallel == l.sequence_parallel; }},
    {"parallel.virtual_stages", [](Config c, Layout l) { return c.parallel.virtual_stages == l.virtual_stages; }},
    {"parallel.schedule", [](Config c, Layout l) { return c.parallel.schedule == l.schedule; }},
    {"parallel.zero", [](Config c, Layout l) { return c.parallel.zero == l.zero; }},
    {"parallel.grad_sync",
     [](Config c, Layout l) { return c.parallel.grad_sync.kind == GradSync::Kind::kStep && l.policy().grad_sync_every == 0; }},
    {"parallel.param_gather", nullptr},
    {"parallel.layers", nullptr},
    {"batch.micro", [](Config c, Layout l) { return c.batch.micro == l.micro; }},
    {"recompute.policy", [](Config c, Layout l) { return c.recompute.policy == l.recompute; }},
};

}  // namespace

TrainConfig config_to_search(OptionValues values) {
  const TrainConfig said = unvalidated_config(values);
  values.take_settings(layout_settings({}));
  TrainConfig config = make_train_config(values);
  config.parallel = said.parallel;
  config.batch.micro = said.batch.micro;
  config.recompute.policy = said.recompute.policy;
  return config;
}

std::vector<std::string> held_keys(const OptionValues& values) {
  std::vector<std::string> held;
  for (const LayoutKey& key : kLayoutKeys) {
    const OptionValue& given = values.at(key.path);
    if (given.origin != "--set" || given.value.is_null() || given.value == JsonValue("auto")) continue;
    if (key.is_same == nullptr)
      throw ConfigError(fmt::format("--set {}: a search does not vary it, for it follows from the layout; leave it out, or give it "
                                    "to trident plan with one layout", key.path));
    held.emplace_back(key.path);
  }
  return held;
}

std::string first_other_key(const TrainConfig& config, const std::vector<std::string>& held, const SearchLayout& layout) {
  for (const LayoutKey& key : kLayoutKeys)
    if (std::ranges::count(held, key.path) > 0 && !key.is_same(config, layout)) return std::string(key.path);
  return "";
}

std::vector<std::string> layout_settings(const SearchLayout& layout) {
  return {fmt::format("parallel={}DP x {}PP x {}TP", layout.data, layout.pipeline, layout.tensor),
          fmt::format("parallel.context={}", layout.context),
          fmt::format("parallel.sequence_parallel={}", layout.sequence_parallel),
          fmt::format("parallel.virtual_stages={}", layout.virtual_stages),
          fmt::format("parallel.schedule={}", to_string(layout.schedule)),
          fmt::format("parallel.zero={}", to_string(layout.zero)),
          fmt::format("parallel.grad_sync={}", layout.reduces_once ? "step" : "null"),
          "parallel.param_gather=null",
          "parallel.layers=null",
          fmt::format("batch.micro={}", layout.micro),
          fmt::format("recompute.policy={}", to_string(layout.recompute))};
}

std::vector<std::string> changed_settings(const TrainConfig& config, const SearchLayout& layout) {
  const JsonValue before = to_json(config), after = to_json(with_layout(config, layout));
  const auto stays = [&](const std::string& block, const std::string& key) {
    return *before.find(block)->find(key) == *after.find(block)->find(key);
  };
  std::vector<std::string> settings = layout_settings(layout);
  std::erase_if(settings, [&](const std::string& setting) {
    const std::string path = setting.substr(0, setting.find('='));
    if (path == "parallel") return stays(path, "data") && stays(path, "pipeline") && stays(path, "tensor");
    const std::size_t dot = path.find('.');
    return stays(path.substr(0, dot), path.substr(dot + 1));
  });
  return settings;
}

TrainConfig with_layout(const TrainConfig& config, const SearchLayout& layout) {
  return with_settings(config, layout_settings(layout));
}

LayoutCosts::LayoutCosts(const TrainConfig& config, const ModelConfig& model, const MachineFacts& machine, Ops* oracle,
                         const WorkPrices& prices)
    : prices_(prices), oracle_(oracle), units_(config, model, machine, oracle), schedules_(config.parallel.overlap) {
  if (const auto samples = find_eval_samples(config, model)) samples_ = samples->shapes();
}

int LayoutCosts::micro_batches(const SearchLayout& layout) const {
  return checked_cast<int>(units_.config().batch.global / (layout.micro * layout.data));
}

ProcessGrid LayoutCosts::grid(const SearchLayout& layout) const {
  return ProcessGrid({layout.tensor, 1, layout.data * layout.context, layout.pipeline}, units_.config().parallel.order);
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

const UnitPasses& LayoutCosts::passes(const SearchLayout& layout) {
  return units_.passes({layout.tensor, layout.sequence_parallel, layout.micro, layout.recompute, layout.context});
}

StoreKey LayoutCosts::store_key(const SearchLayout& layout, bool on_use) const {
  const int shard_ranks = layout.data_shard_ranks();
  return {layout.tensor, layout.sequence_parallel, shard_ranks, layout.data * layout.context / shard_ranks,
          layout.pipeline == 1, layout.policy().shard_optimizer, layout.policy().grad_sync_every > 0, on_use};
}

const StorePasses& LayoutCosts::stores(const SearchLayout& layout, bool on_use) { return units_.stores(store_key(layout, on_use)); }

// ---- memory --------------------------------------------------------------------------------------------------------------------

LayoutMemory LayoutCosts::memory_inputs(const SearchLayout& layout) {
  const int m = micro_batches(layout);
  const TrainConfig& config = units_.config();
  const BatchConfig batch{.micro = layout.micro, .sequence = config.batch.sequence / layout.context};
  ArenaPlan buffers;
  book_batch(config, batch, units_.model().sliding_window, m, LossDetail::kOfBatches, units_.leaves_rows_out(), buffers);
  const ZeroPolicy policy = layout.policy();
  const int data = layout.data_shard_ranks();
  const bool may_gather = data > 1 && policy.param_gather == ParamGather::kPerUse;
  const ByUnitKind<UnitLayout>& units = units_.units(layout.tensor, layout.sequence_parallel, data);
  ByUnitKind<UnitBytes> unit_bytes;
  for (const UnitKind kind : kUnitKinds) unit_bytes[kind] = units[kind].bytes(policy, units_.compute(), layout.pipeline == 1);
  return {.passes = passes(layout),
          .unit_bytes = unit_bytes,
          .resident = units_.store_memory(store_key(layout, false)),
          .on_use = units_.store_memory(store_key(layout, may_gather)),
          .schedule = schedules_.facts({layout.schedule, layout.pipeline, layout.virtual_stages, m}),
          .policy = policy,
          .compute = units_.compute(),
          .overlap = config.parallel.overlap,
          .may_gather = may_gather,
          .one_stage = layout.pipeline * layout.virtual_stages == 1,
          .batch = buffers.total_bytes()};
}

// The rank of a pipeline stage continues eval.samples by a CachedStage beside what trains.
ArenaMemory LayoutCosts::memory_of_samples(const SearchLayout& layout, int rank) {
  const UnitsOfStage& all = stages(layout).of_stage;
  UnitsOfStage mine;
  for (std::size_t s = static_cast<std::size_t>(rank); s < all.size(); s += static_cast<std::size_t>(layout.pipeline))
    mine.push_back(all[s]);
  const std::pair key(layout.tensor, std::move(mine));
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = sample_memory_.find(key); found != sample_memory_.end()) return found->second;
  }
  const ProcessGrid grid({layout.tensor, 1, 1, layout.pipeline}, units_.config().parallel.order);
  DryDevice device(oracle_);
  const TensorLayout tensor{layout.tensor, false};
  ParallelContext context(grid, device, make_dry_world(grid.rank({.pipeline = rank}), grid.world_size()),
                          partial_axes(units_.model(), tensor), CollectiveChecks::kOff);
  LayerGeometry geometry;
  geometry.tensor_degree = layout.tensor;
  geometry.compute = units_.compute();
  ArenaPlan arena;
  const CachedStage stage(units_.model(), geometry, all, *samples_, context, arena);
  const std::scoped_lock lock(mutex_);
  return sample_memory_.try_emplace(key, arena).first->second;
}

ArenaMemory LayoutCosts::memory_of_rank(const SearchLayout& layout, const LayoutMemory& in, int rank) {
  ArenaMemory memory = in.of(at(stages(layout).of_rank, rank), rank);
  if (samples_) memory.add(memory_of_samples(layout, rank));
  return memory;
}

std::vector<ArenaMemory> LayoutCosts::memory(const SearchLayout& layout) {
  const LayoutMemory in = memory_inputs(layout);
  std::vector<ArenaMemory> ranks;
  for (int rank = 0; rank < layout.pipeline; ++rank) ranks.push_back(memory_of_rank(layout, in, rank));
  return ranks;
}

LayoutCosts::Worst LayoutCosts::worst_memory(const SearchLayout& layout) {
  const LayoutMemory in = memory_inputs(layout);
  const std::vector<RankUnits>& units = stages(layout).of_rank;
  const bool caches_differ = samples_ && !units_.model().sliding_layers.empty();
  Worst worst;
  for (int rank = 0; rank < layout.pipeline; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    // A rank with the units and the buffers of the one before it needs as much, where no caches depend on which blocks slide.
    if (rank > 0 && !caches_differ && units[r] == units[r - 1] && in.schedule[r].slots == in.schedule[r - 1].slots &&
        in.schedule[r].activation_receives <= in.schedule[r - 1].activation_receives &&
        in.schedule[r].gradient_receives <= in.schedule[r - 1].gradient_receives &&
        in.schedule[r].successions == in.schedule[r - 1].successions)
      continue;
    const ArenaMemory memory = memory_of_rank(layout, in, rank);
    if (memory.total() > worst.memory.total()) worst = {rank, memory};
  }
  return worst;
}

// ---- time ----------------------------------------------------------------------------------------------------------------------

double LayoutCosts::least_seconds(const SearchLayout& layout) {
  const ProcessGrid grid = this->grid(layout);
  const UnitPasses& passes = this->passes(layout);
  const auto seconds = [&](const PassRecord& pass) { return price_pass(pass, grid, prices_).total(); };
  ByUnitKind<double> unit;  // forward and backward of a micro-batch
  for (const UnitKind kind : kUnitKinds)
    unit[kind] = seconds(passes.forward[kind]) + std::min(seconds(passes.first_backward[kind]), seconds(passes.backward[kind]));
  const double message = layout.pipeline > 1 ? seconds(over_pipeline(passes.send, layout.pipeline)) : 0;
  double least = 0, before = 0;
  for (const RankUnits& rank : stages(layout).of_rank) {
    double first = 0, all = 0;  // of its first chunk, of all
    for (std::size_t chunk = 0; chunk < rank.size(); ++chunk) {
      for (const UnitKind kind : kUnitKinds) all += rank[chunk].count(kind) * unit[kind];
      if (chunk == 0) first = all;
    }
    least = std::max(least, before + micro_batches(layout) * all);
    before += first + 2 * message;
  }
  return least + seconds(passes.outside) + prices_.step_seconds();
}

RecordedStep LayoutCosts::step(const SearchLayout& layout, int micro_batches) {
  return step(layout, micro_batches, build_step_programs);
}

LoopedStep LayoutCosts::looped_step(const SearchLayout& layout) {
  const int all = micro_batches(layout);
  const std::int64_t sync_every = layout.policy().grad_sync_every;
  const int few = short_micro_batches(layout.schedule, layout.pipeline, sync_every, all);
  LoopedStep looped{step(layout, few, build_programs_for_pricing), {}, all};
  looped.loops.resize(looped.step.programs.size());
  if (few == all) return looped;
  const int turn = loop_turn(layout.schedule, layout.pipeline, sync_every);
  for (std::size_t rank = 0; rank < looped.loops.size(); ++rank) {
    looped.loops[rank] = find_loops(looped.step.programs[rank], looped.step.records[rank].pass_of, turn, all - few);
    if (looped.loops[rank].empty())
      return {step(layout, all, build_programs_for_pricing), std::vector<ProgramLoops>(looped.loops.size()), all};
  }
  return looped;
}

RecordedStep LayoutCosts::step(const SearchLayout& layout, int micro_batches, BuildPrograms build) {
  StepProgramSpec spec;
  spec.units_of_stage = stages(layout).of_stage;
  spec.schedule = make_schedule(layout.schedule, layout.pipeline, layout.virtual_stages,
                                micro_batches > 0 ? micro_batches : this->micro_batches(layout));
  spec.zero = layout.policy();
  spec.data_parallel = layout.data * layout.context;
  spec.tied = units_.model().tie_embeddings;
  spec.overlap = units_.config().parallel.overlap;
  const LayoutMemory memory = memory_inputs(layout);
  for (int unit = 0; unit < units_.num_units(); ++unit) {
    const UnitKind kind = unit == 0 ? UnitKind::kEmbedding : unit + 1 == units_.num_units() ? UnitKind::kHead : UnitKind::kBlock;
    spec.unit_bytes.push_back(memory.unit_bytes[kind]);
  }
  RecordedStep step{grid(layout), spec.overlap, build(spec), {}};
  for (const StepProgram& program : step.programs) {
    const StorePasses& stores = this->stores(layout, program.gathers_on_use);
    step.records.push_back(Recorder(program, spec, memory.passes, stores, layout.pipeline).run());
  }
  return step;
}

}  // namespace trident
