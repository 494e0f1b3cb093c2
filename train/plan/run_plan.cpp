#include "train/plan/run_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/at.h"
#include "core/counted.h"
#include "core/int_math.h"
#include "core/number_text.h"
#include "model/config/model_stats.h"
#include "model/config/rope_table.h"
#include "pipeline/schedule/schedule_generators.h"
#include "pipeline/schedule/step_program_check.h"
#include "train/config/near_sizes.h"
#include "train/config/resolve_tuning.h"
#include "train/plan/step_flops.h"

namespace trident {
namespace {

ParallelDegrees degrees_of(const ParallelConfig& parallel, int world_size) {
  ParallelDegrees degrees{checked_cast<int>(parallel.tensor), checked_cast<int>(parallel.context), 1,
                          checked_cast<int>(parallel.pipeline)};
  if (parallel.data) {
    degrees.data = checked_cast<int>(*parallel.data);
  } else if (world_size > 0) {
    const int replica = degrees.world_size();
    if (world_size % replica != 0) {
      throw ConfigError(
          fmt::format("parallel.data = \"auto\": {} {} not a multiple of tensor x context x pipeline = {}; start a "
                      "multiple of {} ranks",
                      counted(world_size, "rank"), world_size == 1 ? "is" : "are", replica, replica));
    }
    degrees.data = world_size / replica;
  }
  if (world_size > 0) check_world_size(degrees, world_size);
  return degrees;
}

int micro_batches_of_a_rank(const BatchConfig& batch, int data, int started) {
  const std::int64_t per_micro_batch = batch.micro * data;
  if (batch.global % per_micro_batch != 0)
    throw ConfigError(fmt::format("batch.global = {}: not divisible by batch.micro x parallel.data = {} x {} = {}; use {}{}{}",
                                  batch.global, batch.micro, data, per_micro_batch,
                                  batch_that_divides(batch.global, batch.micro, data),
                                  batch.global >= data ? ""
                                                       : fmt::format(", or at most {} with batch.micro = 1",
                                                                     counted(batch.global, "data rank")),
                                  started > 1 ? fmt::format(" ({} ranks were started)", started) : ""));
  return checked_cast<int>(batch.global / per_micro_batch);
}

void check_program_size(const RunPlan& plan) {
  constexpr std::int64_t kMaxStages = 1 << 10;  // the division of layers takes their square times stages
  const ParallelConfig& parallel = plan.config.parallel;
  if (parallel.virtual_stages > kMaxStages / parallel.pipeline)
    throw ConfigError(
        fmt::format("parallel.pipeline = {}: with parallel.virtual_stages = {} these are more stages than the {} that "
                    "can be; lower one of them",
                    parallel.pipeline, parallel.virtual_stages, kMaxStages));
  const std::int64_t most = most_micro_batches(num_units(plan.model));
  if (plan.num_micro_batches <= most) return;
  throw ConfigError(
      fmt::format("batch.global = {}: {} micro-batches per step on each data-parallel rank are more than the {} that a model of {} "
                  "can have; raise batch.micro or parallel.data",
                  plan.config.batch.global, plan.num_micro_batches, most, counted(plan.model.layers, "layer")));
}

// Row numbers of activations are 32-bit in the kernels.
void check_rows(const BatchConfig& batch) {
  constexpr std::int64_t kMaxRows = (std::int64_t{1} << 31) - 1;
  if (batch.micro <= kMaxRows / batch.sequence) return;
  throw ConfigError(
      fmt::format("batch.micro = {}: times batch.sequence = {} are more than {} tokens in a micro-batch; use at most {}",
                  batch.micro, batch.sequence, kMaxRows, kMaxRows / batch.sequence));
}

// Sizes are counted in 64 bits. What a rank holds is less than its largest activation times its units and micro-batches, several
// times over.
void check_sizes(const RunPlan& plan) {
  constexpr double kMostBytes = 1e18;
  const ModelConfig& model = plan.model;
  const BatchConfig& batch = plan.config.batch;
  const auto width = static_cast<double>(std::max({model.vocab_size, 2 * model.ffn, model.query_width() * 3, model.hidden}));
  const double rows = static_cast<double>(batch.micro) * static_cast<double>(batch.sequence);
  if (rows * width * 8 * num_units(model) * plan.num_micro_batches <= kMostBytes) return;
  throw ConfigError(fmt::format("batch.micro = {}, batch.sequence = {}: activations of {:.3g} rows and {:.3g} columns in {} "
                                "micro-batches and {} units are more than can be counted; lower them",
                                batch.micro, batch.sequence, rows, width, plan.num_micro_batches, num_units(model)));
}

std::string bf16_text(double over_fp32) {
  if (over_fp32 == 0) return "has no bf16 products";
  if (over_fp32 == kMatrixUnitsOverFp32) return "has bf16 products";
  return fmt::format("multiplies bf16 {:.4g} times as fast as fp32", over_fp32);
}

DType compute_dtype(const PrecisionConfig& precision, const MachineFacts& machine, std::string& reason) {
  const std::string widened = fmt::format("values are stored in {} and multiplied in fp32", to_string(precision.compute));
  const std::string_view processor = multiplier_name(machine.device);
  reason = fmt::format("precision.compute = {}", to_string(precision.compute));
  switch (precision.compute) {
    case ComputeFormat::kFp32: return DType::kF32;
    case ComputeFormat::kBf16:
      if (!machine.fast_bf16()) reason += fmt::format("; this {} {}: {}", processor, bf16_text(machine.bf16_over_fp32), widened);
      return DType::kBF16;
    case ComputeFormat::kFp16:
      if (!machine.multiplies_fp16) reason += fmt::format("; on this {} {}", processor, widened);
      return DType::kF16;
    case ComputeFormat::kAuto: break;
  }
  const double ratio = precision.bf16_over_fp32.value_or(machine.bf16_over_fp32);
  reason += fmt::format(": the {} {}", processor, bf16_text(ratio));
  return bf16_products_at(ratio) == Bf16Products::kNative ? DType::kBF16 : DType::kF32;
}

// The choice of auto where the run began holds on machines that would choose otherwise.
void settle_precision(RunPlan& plan, const MachineFacts& machine) {
  PrecisionConfig& precision = plan.config.precision;
  plan.compute = compute_dtype(precision, machine, plan.compute_reason);
  plan.fast_bf16 = machine.fast_bf16();
  const bool multiplies = plan.compute == DType::kF16 ? machine.multiplies_fp16 : machine.fast_bf16();
  plan.multiplied = multiplies ? plan.compute : DType::kF32;
  const bool is_bf16 = plan.compute == DType::kBF16;
  if (precision.compute == ComputeFormat::kAuto && is_bf16 != machine.fast_bf16())
    plan.notes.push_back(
        fmt::format("precision.compute = auto stays {}, as it was at the first start, on a processor that {}; this {} {}, and auto "
                    "would be {} here; to change it give the key",
                    is_bf16 ? "bf16" : "fp32", bf16_text(*precision.bf16_over_fp32), multiplier_name(machine.device),
                    bf16_text(machine.bf16_over_fp32), is_bf16 ? "fp32" : "bf16"));
  if (!precision.bf16_over_fp32) precision.bf16_over_fp32 = machine.bf16_over_fp32;
}

UnitsOfStage partition(const RunPlan& plan, const std::vector<double>& costs) {
  const ParallelConfig& parallel = plan.config.parallel;
  const int pipeline = plan.grid.degrees().pipeline, chunks = checked_cast<int>(parallel.virtual_stages);
  if (parallel.layers) return partition_explicit(*parallel.layers, checked_cast<int>(plan.model.layers), pipeline, chunks);
  return partition_balanced(costs, pipeline, chunks);
}

void check_lengths(const RunPlan& plan) {
  const std::int64_t sequence = plan.config.batch.sequence;
  if (sequence > plan.model.longest_sequence()) {
    throw ConfigError(fmt::format("batch.sequence = {}: the model has {} positions; use at most {}", sequence,
                                  plan.model.max_positions, plan.model.max_positions));
  }
  if (plan.config.data.reset_position_ids && plan.model.position == PositionKind::kRope &&
      turns_by_length(plan.model.rope, sequence))
    throw ConfigError(
        fmt::format("data.reset_position_ids = true: the model's rope_scaling \"dynamic\" turns all tokens of a sequence "
                    "of more than {} tokens by angles of its length, and documents have lengths of their own; use "
                    "batch.sequence up to that, or set the key to false",
                    plan.model.rope.original_max_positions));
  check_layout(plan.model, plan.tensor_layout, sequence);
}

// A unit on a rank has at most so many: more would not be placed in the 32-bit numbers of programs, beside others that live with
// it.
void check_units(const RunPlan& plan) {
  constexpr std::int64_t kMost = std::int64_t{1} << 36;
  for (const UnitLayout& unit : plan.units) {
    const std::int64_t elements = unit.elements(), vocabulary = plan.model.vocab_size;
    if (elements <= kMost) continue;
    const std::string too_many = fmt::format("{} parameters in one of its units on a rank are more than {}", elements, kMost);
    if (unit.unit != 0 && unit.unit != head_unit(plan.model))
      throw ConfigError(fmt::format("model: {}; raise parallel.tensor, or lower the widths of a layer", too_many));
    const double share = static_cast<double>(kMost) / static_cast<double>(elements);
    const auto most = static_cast<std::int64_t>(share * static_cast<double>(vocabulary)) - plan.model.max_positions - 1;
    throw ConfigError(fmt::format("model.vocab_size = {}: {}; {}", vocabulary, too_many,
                                  most > 0 ? fmt::format("use at most {}", most) : "lower the model's width"));
  }
}

void take_trained_units(const RunPlan& plan, StepProgramSpec& spec) {
  std::vector<bool> trained;
  for (const UnitLayout& unit : plan.units) trained.push_back(std::ranges::any_of(unit.buckets, &BucketLayout::trainable));
  spec.lowest_trained = static_cast<int>(std::ranges::find(trained, true) - trained.begin());
  spec.trained = std::ranges::find(trained, false) == trained.end() ? std::vector<bool>() : std::move(trained);
}

bool trains_tied(const RunPlan& plan) {
  return std::ranges::any_of(plan.units.front().buckets,
                             [](const BucketLayout& bucket) { return bucket.tie == TiedEnd::kLookup && bucket.trainable; });
}

void make_programs(RunPlan& plan) {
  const ParallelConfig& parallel = plan.config.parallel;
  const ScheduleKind kind = parallel.schedule;
  const int pipeline = plan.grid.degrees().pipeline, chunks = checked_cast<int>(parallel.virtual_stages);
  StepProgramSpec& spec = plan.step_spec;
  spec.units_of_stage = partition(plan, step_costs(plan));
  spec.schedule = make_schedule(kind, pipeline, chunks, plan.num_micro_batches);
  spec.zero = plan.zero;
  spec.data_parallel = plan.grid.degrees().data * plan.grid.degrees().context;
  take_trained_units(plan, spec);
  spec.tied = trains_tied(plan);
  spec.overlap = parallel.overlap;
  spec.unit_bytes.clear();
  for (const UnitLayout& unit : plan.units) spec.unit_bytes.push_back(unit.bytes(plan.zero, plan.compute, pipeline == 1));
  plan.step_programs = build_step_programs(spec);
  check_step_programs(plan.step_programs, spec);
  plan.eval_spec = spec;
  plan.eval_spec.schedule = make_forward_only(pipeline, chunks, plan.num_micro_batches);
  for (const StepProgram& program : plan.step_programs) plan.eval_spec.gathers_on_use.push_back(program.gathers_on_use);
  plan.eval_programs = build_step_programs(plan.eval_spec);
  check_step_programs(plan.eval_programs, plan.eval_spec);
}

}  // namespace

RunPlan with_policy(RunPlan plan, const ZeroPolicy& policy) {
  plan.zero = policy;
  make_programs(plan);
  return plan;
}

RunPlan with_micro_batch(RunPlan plan, std::int64_t micro) {
  const bool trains = plan.trains();
  plan.config.batch.micro = micro;
  plan.num_micro_batches = micro_batches_of_a_rank(plan.config.batch, plan.grid.degrees().data, 0);
  make_programs(plan);
  return trains ? plan : forward_only(std::move(plan));
}

RunPlan forward_only(RunPlan plan) {
  plan.step_programs.clear();
  plan.notes.clear();
  plan.details.clear();
  plan.predicted_bubble = 0;
  plan.eval_spec.gathers_on_use.clear();
  plan.eval_programs = build_step_programs(plan.eval_spec);
  check_step_programs(plan.eval_programs, plan.eval_spec);
  return plan;
}

RunPlan generation_only(RunPlan plan, KvCacheShape shapes) {
  plan = forward_only(std::move(plan));
  plan.eval_programs.clear();
  plan.generation = std::move(shapes);
  return plan;
}

std::vector<double> unit_costs(const ModelConfig& model, const BatchConfig& batch) {
  const PartFlops flops = part_flops_per_token(model, batch.sequence);
  const double tokens = static_cast<double>(batch.micro * batch.sequence) / 3.0;  // forward is a third of forward and backward
  std::vector<double> costs(static_cast<std::size_t>(num_units(model)));
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    costs[static_cast<std::size_t>(layer) + 1] = block_flops_per_token(model, layer, batch.sequence) * tokens;
  costs.front() = flops.embedding * tokens;
  costs.back() = flops.head * tokens;
  return costs;
}

std::int64_t MachineFacts::bytes() const {
  std::int64_t sum = elsewhere ? elsewhere->bytes : 0;
  for (const MemoryPool& pool : memory) sum += pool.bytes;
  return sum;
}

std::int64_t MachineFacts::bytes_per_rank() const {
  std::int64_t least = elsewhere ? elsewhere->bytes_per_rank : std::numeric_limits<std::int64_t>::max();
  for (const MemoryPool& pool : memory) least = std::min(least, pool.bytes / std::max<std::int64_t>(1, std::ssize(pool.ranks)));
  return memory.empty() ? 0 : least;
}

std::int64_t UnitLayout::elements() const {
  std::int64_t sum = 0;
  for (const BucketLayout& bucket : buckets) sum += bucket.elements;
  return sum;
}

UnitBytes UnitLayout::bytes(const ZeroPolicy& zero, DType compute, bool one_rank_has_both_ends) const {
  const auto rounded = [](std::int64_t elements, DType dtype) { return round_up(elements * size_of(dtype), kPlaceBytes); };
  std::int64_t held = 0, owned = 0, trained = 0;
  for (const BucketLayout& bucket : buckets) {
    if (bucket.trainable) trained += bucket.elements;
    if (bucket.tie == TiedEnd::kHead && one_rank_has_both_ends) continue;  // lies with the embedding
    held += bucket.elements;
    owned += zero.shard_optimizer ? bucket.shard_elements : bucket.elements;
  }
  return {.gathered = rounded(elements(), compute),
          .gradients = rounded(trained, DType::kF32),
          .resident = rounded(held, compute),
          .shard = owned * size_of(compute)};
}

UnitLayout lay_out_unit(const ModelConfig& model, const TensorLayout& tensor, int replicas, double bucket_mb, int unit) {
  std::vector<ParamSpec> specs = unit_params(model, tensor, unit);
  std::vector<BucketLayout> buckets = make_buckets(specs, tensor.degree, replicas, static_cast<std::int64_t>(bucket_mb * 1e6));
  return {unit, std::move(specs), std::move(buckets)};
}

LayerGeometry RunPlan::geometry(int tensor_rank) const {
  LayerGeometry geometry;
  geometry.sequence = config.batch.sequence;
  geometry.micro_batch = config.batch.micro;
  geometry.tensor_degree = tensor_layout.degree;
  geometry.tensor_rank = tensor_rank;
  geometry.sequence_parallel = tensor_layout.sequence_parallel;
  geometry.compute = compute;
  geometry.recompute = recompute;
  geometry.head_chunk = leaves_rows_out ? geometry.full_rows() : config.recompute.head_chunk;
  geometry.leaves_rows_out = leaves_rows_out;
  geometry.seed = static_cast<std::uint64_t>(config.run.seed);
  geometry.document_interval = document_interval();
  geometry.positions_restart = config.data.reset_position_ids;
  return geometry;
}

std::int64_t RunPlan::windowed_layers() const {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < model.layers && window() > 0; ++layer) count += model.slides(layer) ? 1 : 0;
  return count;
}

std::int64_t RunPlan::document_interval() const {
  if (!config.data.reset_attention_mask) return 0;
  const double longest = static_cast<double>(config.batch.sequence);
  const double seen = (config.data.mean_document_tokens().value_or(2 * longest) + 1) / 2;
  return std::llround(std::clamp(seen, 1.0, longest));
}

const StepProgram& RunPlan::step_program(int rank) const { return at(step_programs, grid.coordinates(rank).pipeline); }
const StepProgram& RunPlan::eval_program(int rank) const { return at(eval_programs, grid.coordinates(rank).pipeline); }

namespace {

// Resolves cuda.graphs: hosts drive the collectives of tensor-parallel ranks.
std::string graphs_note(const RunPlan& plan) {
  constexpr const char* kUpdates = "cuda.graphs: updates of units are captured and launched as a whole";
  if (plan.tensor_layout.degree > 1)
    return fmt::format("{}; their passes are not, because parallel.tensor = {} communicates within them", kUpdates, plan.tensor_layout.degree);
  return fmt::format("{}, and so are their passes", kUpdates);
}

// Nothing is done otherwise than asked without a word.
void add_gather_note(RunPlan& plan) {
  if (plan.step_spec.data_parallel == 1 || plan.zero.param_gather == ParamGather::kResident) return;
  const auto keeps = [](const StepProgram& program) { return !program.gathers_on_use; };
  const auto stages = std::count_if(plan.step_programs.begin(), plan.step_programs.end(), keeps);
  if (stages == 0) return;
  plan.notes.push_back(fmt::format("{}: ranks of {} of {} keep their parameters and gather them once a step, because gathering "
                                   "them on use would take no less memory",
                                   to_string(plan.zero.preset), stages, counted(std::ssize(plan.step_programs), "stage")));
}

void add_gpu_notes(RunPlan& plan, DeviceKind device) {
  if (device == DeviceKind::kCuda) {
    if (plan.config.cuda.graphs) plan.notes.push_back(graphs_note(plan));
    return;
  }
  const std::vector<std::string> keys = keys_set_in(plan.config, "cuda");
  if (keys.empty()) return;
  plan.notes.push_back(fmt::format("{} {} no effect: the run computes on the {}", fmt::join(keys, ", "), keys.size() == 1 ? "has" : "have",
                                   multiplier_name(device)));
}

// "train.only: 1.049M of 60.16M parameters train (1.74 %)". Adapters come to the model's parameters.
void add_trained_note(RunPlan& plan) {
  if (plan.model.tuning == nullptr) return;
  const auto [trained, all] = count_parameters(plan);
  const TrainConfig& c = plan.config;
  const std::string_view key = !c.train.only.empty() ? "train.only" : !c.train.freeze.empty() ? "train.freeze" : "adapter";
  const auto trains = static_cast<double>(trained), whole = static_cast<double>(all);
  const std::string of_all = fmt::format(" of {} parameters train", parameters_text(whole)),
                    frozen = fmt::format(" parameters train, {} are frozen", parameters_text(whole - trains));
  plan.notes.push_back(fmt::format("{}: {}{} ({:.3g} %)", key, parameters_text(trains), key == "adapter" ? frozen : of_all,
                                   100 * trains / whole));
}

}  // namespace

RunPlan make_run_plan(const TrainConfig& config, const ModelConfig& model, int world_size, const MachineFacts& machine) {
  RunPlan plan;
  plan.config = config;
  plan.notes = config.replaced;
  plan.model = model;
  plan.model.tuning = resolve_tuning(config, model);
  plan.grid = ProcessGrid(degrees_of(config.parallel, world_size), config.parallel.order);
  plan.tensor_layout = {plan.grid.degrees().tensor, config.parallel.sequence_parallel};
  settle_precision(plan, machine);
  if (config.precision.stochastic_rounding && plan.compute != DType::kBF16)
    throw ConfigError(fmt::format("precision.stochastic_rounding = true: only bf16 weights are rounded at random, and weights are {} "
                                  "({}); set precision.compute to \"bf16\", or precision.stochastic_rounding to false",
                                  to_string(plan.compute), plan.compute_reason));
  if (const double dropout = std::max(model.residual_dropout, model.embedding_dropout); config.loss.is_dpo() && dropout > 0)
    throw ConfigError(
        fmt::format("model.dropout = {}: loss.type \"dpo\" compares the model with a reference that has none; set it to 0",
                    dropout));
  if (machine.device == DeviceKind::kCpu) {
    const std::optional<std::int64_t>& asked = config.run.threads_per_rank;
    plan.threads_per_rank = asked ? checked_cast<int>(*asked) : machine.core_share.threads();
    const bool has_quota = machine.core_share.at_once() < machine.core_share.cores;
    if (!asked) (has_quota ? plan.notes : plan.details).push_back(threads_line(machine.core_share));
    else if (const CoreShare& share = machine.core_share; *asked * share.ranks > share.at_once() && *asked > share.threads())
      plan.notes.push_back(fmt::format("run.threads_per_rank = {}: {} threads on {}, which is slow; \"auto\" takes {}", *asked,
                                       *asked * share.ranks, counted(share.at_once(), "core"), share.threads()));
  }
  plan.recompute = config.recompute.policy;
  // GPUs replay captured calls, whose numbers of rows are fixed. Who asks for chunks wants less memory than the rows' copies take.
  plan.leaves_rows_out = config.may_leave_rows_out() && machine.device == DeviceKind::kCpu && config.recompute.head_chunk == 0;
  plan.memory = machine.memory;
  const bool no_gpu = config.device == AskedDevice::kAuto && machine.device == DeviceKind::kCpu;
  if (no_gpu) plan.device_reason = machine.device_reason;
  else if (!machine.device_reason.empty()) plan.details.push_back(machine.device_reason);
  plan.num_micro_batches = micro_batches_of_a_rank(config.batch, plan.grid.degrees().data, world_size);
  check_lengths(plan);
  check_rows(config.batch);
  check_sizes(plan);
  check_program_size(plan);
  plan.partial_axes = partial_axes(plan.model, plan.tensor_layout);
  const int replicas = plan.grid.degrees().data * plan.grid.degrees().context;
  for (int unit = 0; unit < num_units(plan.model); ++unit)
    plan.units.push_back(lay_out_unit(plan.model, plan.tensor_layout, replicas, config.parallel.bucket_mb, unit));
  check_units(plan);
  plan.zero = policy_of(config.parallel.zero);
  if (config.parallel.param_gather) plan.zero.param_gather = *config.parallel.param_gather;
  const GradSync& sync = config.parallel.grad_sync;
  if (sync.kind == GradSync::Kind::kStep) plan.zero.grad_sync_every = 0;
  if (sync.kind == GradSync::Kind::kEvery) plan.zero.grad_sync_every = sync.every;
  make_programs(plan);
  add_trained_note(plan);
  if (config.run.epochs && config.run.steps == 0)
    plan.notes.emplace_back("how many steps the run has is not known: run.steps says it, or run.epochs of data that can be read");
  if (const std::int64_t warmup = config.lr_schedule.warmup.steps; config.run.steps > 0 && warmup > config.run.steps)
    plan.notes.push_back(fmt::format("lr_schedule.warmup_steps = {}: beyond run.steps = {}, so that the learning rate does not get "
                                     "to optimizer.lr = {}", warmup, config.run.steps, config.optimizer.lr));
  add_gather_note(plan);
  add_gpu_notes(plan, machine.device);
  const StepTimeline step = flops_timeline(plan);
  plan.predicted_bubble = step.bubble_over_ideal();
  if (const std::string note = bubble_note(plan, step); !note.empty()) plan.notes.push_back(note);
  plan.notes.insert(plan.notes.end(), machine.notes.begin(), machine.notes.end());
  return plan;
}

}  // namespace trident
