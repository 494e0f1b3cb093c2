#include "train/run/rank_trainer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "device/no_allocation.h"
#include "train/plan/update_rule_of.h"
#include "train/run/arena_check.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

ParamStoreConfig store_config(const RunPlan& plan, const StepProgram& step, const StepProgram& eval) {
  ParamStoreConfig config;
  config.policy = plan.zero;
  config.compute = plan.compute;
  config.bucket_bytes = static_cast<std::int64_t>(plan.config.parallel.bucket_mb * 1e6);
  config.seed = static_cast<std::uint64_t>(plan.config.run.seed);
  if (step.gathers_on_use) config.gather_bytes = std::max(step.gather_bytes, eval.gather_bytes);
  config.grad_bytes = step.grad_bytes;
  return config;
}

LossScaler loss_scaler_of(const RunPlan& plan) {
  const LossScale& scale = plan.config.precision.loss_scale;
  const bool dynamic =
      scale.kind == LossScale::Kind::kDynamic || (scale.kind == LossScale::Kind::kByFormat && plan.compute == DType::kF16);
  return dynamic ? LossScaler::dynamic() : LossScaler::fixed(scale.fixed);
}

}  // namespace

LrSchedule lr_schedule_of(const TrainConfig& config) {
  LrSchedule schedule;
  schedule.type = config.lr_schedule.type;
  schedule.lr = config.optimizer.lr;
  schedule.min_lr = config.lr_schedule.min_lr;
  schedule.warmup_steps = config.lr_schedule.warmup_steps;
  schedule.decay_steps = config.lr_schedule.decay_steps.value_or(config.run.steps);
  schedule.wsd_decay_steps = config.lr_schedule.wsd_decay_steps.value_or(0);
  schedule.wsd_decay = config.lr_schedule.wsd_decay_type;
  validate(schedule);
  return schedule;
}

namespace {

// Kernels of products and attention come to the card here: a communicator of NCCL that is connected may keep the card busy until a
// peer's host calls, which waits for what its own card is not idle for.
std::unique_ptr<Communicator> after_first_runs(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world) {
  if (device.kind() == DeviceKind::kCuda) {
    dry_run(plan, world->rank(), &device.ops(), DryWork::kConstruct);  // announces them
    device.run_announced();
  }
  return world;
}

}  // namespace

RankTrainer::RankTrainer(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world, StatusBoard* board, const OnDevice& on_device)
    : plan_(plan),
      device_(device),
      context_(plan.grid, device, after_first_runs(plan, device, std::move(world)), plan.partial_axes,
               plan.config.debug.check_collectives ? CollectiveChecks::kOn : CollectiveChecks::kOff, board, on_device),
      statistics_(context_, arena_plan_),
      executor_(device),
      lr_schedule_(lr_schedule_of(plan.config)),
      loss_scaler_(loss_scaler_of(plan)) {
  const StepProgram &step = plan.step_program(context_.rank()), &eval = plan.eval_program(context_.rank());
  const StepProgram* const programs[] = {&step, &eval};
  stage_ = std::make_unique<Stage>(plan.model, plan.geometry(context_.coordinates().tensor), plan.step_spec.units_of_stage, programs,
                                   context_, arena_plan_);
  store_ = std::make_unique<ParamStore>(store_config(plan, step, eval), stage_->unit_params(), context_, arena_plan_);
  const bool at_random = plan.config.precision.stochastic_rounding;
  const WeightRounding rounding = at_random ? WeightRounding::kStochastic : WeightRounding::kNearest;
  optimizer_ = std::make_unique<ShardedOptimizer>(update_rule_of(plan.config), rounding, *store_, context_, arena_plan_);
  book_batches();

  check_memory();
  make_arena();
  stage_->bind(*arena_, *store_);
  store_->bind(*arena_);
  optimizer_->bind(*arena_);
  statistics_.bind(*arena_);
  bind_batches();
  bind_handlers();
}

// What a card has left is known when all ranks have made what is not in the plan. What hosts have was compared before, in
// prepare_run().
void RankTrainer::check_memory() {
  const std::optional<std::int64_t> free = device_.free_bytes();
  if (!free) return;
  context_.world().barrier();
  const ArenaNeed mine{.total = static_cast<double>(arena_plan_.total_bytes()), .free = static_cast<double>(*free)};
  check_free(plan_, context_.world(), context_.host_stream(), mine,
             [&] { return arena_needs(plan_, dry_stages(plan_, &device_.ops(), DryWork::kConstruct)); });
}

void RankTrainer::make_arena() {
  const std::string name = fmt::format("the arena of rank {} ({})", context_.rank(), largest_entries(arena_plan_));
  Buffer memory = device_.allocate(arena_plan_.total_bytes(), name);
  const TensorView all(memory.data(), DType::kU8, {memory.num_bytes()}, memory.where());
  arena_ = std::make_unique<Arena>(arena_plan_, std::move(memory));
  if (!plan_.config.cuda.nccl_register) return;
  if (const std::string line = context_.register_memory(all); !line.empty()) notes_.push_back("cuda.nccl_register: " + line);
}

// ---- batches ----------------------------------------------------------------------------------------------------------------------

void RankTrainer::book_batches() {
  const BatchConfig& batch = plan_.config.batch;
  const std::int64_t m = plan_.num_micro_batches, tokens = batch.micro * batch.sequence;
  const auto book = [&](const char* name, std::int64_t elements, DType dtype) {
    return arena_plan_.book(name, MemoryUse::kData, elements * size_of(dtype));
  };
  batch_slots_ = {book("tokens", m * tokens, DType::kI32),           book("targets", m * tokens, DType::kI32),
                  book("positions by row", tokens, DType::kI32),     book("positions by sample", tokens, DType::kI32),
                  book("sample numbers", m * batch.micro, DType::kI64), book("losses", m, DType::kF64)};
}

void RankTrainer::bind_batches() {
  const std::int64_t m = plan_.num_micro_batches, b = plan_.config.batch.micro, t = plan_.config.batch.sequence;
  tokens_ = arena_->grant(batch_slots_.tokens, DType::kI32, {m, t * b});
  targets_ = arena_->grant(batch_slots_.targets, DType::kI32, {m, t * b});
  positions_by_row_ = arena_->grant(batch_slots_.positions_by_row, DType::kI32, {t * b});
  positions_by_sample_ = arena_->grant(batch_slots_.positions_by_sample, DType::kI32, {b, t});
  samples_ = arena_->grant(batch_slots_.samples, DType::kI64, {m, b});
  losses_ = arena_->grant(batch_slots_.losses, DType::kF64, {m});
  if (device_.has_bytes()) {
    write_positions();
    host_batch_.tokens.resize(static_cast<std::size_t>(m * t * b));
    host_batch_.targets.resize(host_batch_.tokens.size());
    host_batch_.samples.resize(static_cast<std::size_t>(m * b));
  }
  host_batch_.losses.resize(static_cast<std::size_t>(m));
  micro_batches_.resize(static_cast<std::size_t>(m));
  for (std::int64_t k = 0; k < m; ++k) {
    MicroBatch& mb = micro_batches_[static_cast<std::size_t>(k)];
    mb.tokens = tokens_.rows(k, 1).flat();
    mb.targets = targets_.rows(k, 1).flat();
    mb.positions_by_row = positions_by_row_;
    mb.positions_by_sample = positions_by_sample_;
    mb.samples = samples_.rows(k, 1).flat();
    mb.loss = losses_.range(k, 1);
  }
}

void RankTrainer::write_positions() {
  const std::int64_t b = plan_.config.batch.micro, t = plan_.config.batch.sequence;
  std::vector<std::int32_t> by_row(static_cast<std::size_t>(t * b)), by_sample(by_row.size());
  for (std::int64_t i = 0; i < t * b; ++i) {
    by_row[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / b);
    by_sample[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % t);
  }
  device_.write(context_.compute_stream(), positions_by_row_, by_row.data());
  device_.write(context_.compute_stream(), positions_by_sample_, by_sample.data());
}

void RankTrainer::load_batch(const LoadSamples& load, std::int64_t batch, bool training) {
  const RangeScope range(device_.ranges(), "batch");
  BatchSlicing slicing = this->slicing();
  if (!training) slicing.offset = 0;
  if (device_.has_bytes()) write_samples(load, batch, slicing);
  for (MicroBatch& mb : micro_batches_) {
    mb.step = batch;
    mb.training = training;
    // The one division. The scale is a power of two: the product is rounded as the quotient is.
    mb.gradient_scale = static_cast<float>(loss_scaler_.scale() / static_cast<double>(plan_.tokens_per_step()));
  }
}

void RankTrainer::write_samples(const LoadSamples& load, std::int64_t batch, const BatchSlicing& slicing) {
  const auto tokens_of_one = static_cast<std::size_t>(plan_.config.batch.micro * plan_.config.batch.sequence);
  for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k) {
    const std::int64_t first = slicing.first_sample(batch, k, context_.coordinates().data);
    const auto ids = [&](std::vector<std::int32_t>& all, bool wanted) {
      return wanted ? std::span(all).subspan(static_cast<std::size_t>(k) * tokens_of_one, tokens_of_one) : std::span<std::int32_t>();
    };
    if (is_first_stage() || is_last_stage()) {
      load(first, slicing.micro, ids(host_batch_.tokens, is_first_stage()), ids(host_batch_.targets, is_last_stage()));
    }
    for (std::int64_t i = 0; i < slicing.micro; ++i) host_batch_.samples[static_cast<std::size_t>(k * slicing.micro + i)] = first + i;
  }
  Stream& stream = context_.compute_stream();
  if (is_first_stage()) device_.write(stream, tokens_, host_batch_.tokens.data());
  if (is_last_stage()) device_.write(stream, targets_, host_batch_.targets.data());
  device_.write(stream, samples_, host_batch_.samples.data());
}

// The losses this rank reports, once they are computed: every tensor rank of the last stage computes the same.
std::span<const double> RankTrainer::read_losses() {
  const bool reports = is_last_stage() && context_.coordinates().tensor == 0;
  if (!reports) return {};
  device_.read(context_.compute_stream(), host_batch_.losses.data(), losses_);
  return host_batch_.losses;
}

// ---- the step -------------------------------------------------------------------------------------------------------------------------

void RankTrainer::bind_handlers() {
  using Kind = InstructionKind;
  const auto bind = [&](Kind kind, Executor::Handler handler) { executor_.bind(kind, std::move(handler)); };
  bind(Kind::kForward, [this](const Instruction& i) {
    store_->wait_gathered(i.unit, i.gather_place);
    stage_->forward(i);
  });
  const auto begin_backward = [this](const Instruction& i) {
    if (plan_.step_spec.reads_parameters(i)) store_->wait_gathered(i.unit, i.gather_place);
    store_->begin_backward(i.unit, i.grad_place, i.overwrites() ? Accumulate::kNo : Accumulate::kYes);
  };
  const auto backward = [this, begin_backward](const Instruction& i) {
    begin_backward(i);
    stage_->backward(i);
  };
  bind(Kind::kBackward, backward);
  bind(Kind::kBackwardInput, backward);
  bind(Kind::kBackwardWeight, [this, begin_backward](const Instruction& i) {
    begin_backward(i);
    stage_->backward_weight(i);
  });
  bind(Kind::kSendActivation, [this](const Instruction& i) { stage_->send_activation(i); });
  bind(Kind::kRecvActivation, [this](const Instruction& i) { stage_->recv_activation(i); });
  bind(Kind::kSendGradient, [this](const Instruction& i) { stage_->send_gradient(i); });
  bind(Kind::kRecvGradient, [this](const Instruction& i) { stage_->recv_gradient(i); });
  bind(Kind::kGather, [this](const Instruction& i) { store_->gather(i.unit, i.gather_place); });
  bind(Kind::kFree, [this](const Instruction& i) { store_->free(i.unit, i.gather_place); });
  bind(Kind::kReduceGradients, [this](const Instruction& i) { store_->reduce(i.unit, i.last()); });
  bind(Kind::kTieExchange, [this](const Instruction& i) { store_->exchange_tied(i.peer); });
  bind(Kind::kGradNorm, [this](const Instruction&) { decide_update(); });
  bind(Kind::kOptimizerStep, [this](const Instruction& i) {
    if (!result_.applied) return;
    if (update_hook_) update_hook_(i.unit);
    device_.repeat([&] { optimizer_->step(i.unit, result_.updates, result_.lr, update_scale_); });
    store_->masters_updated();
  });
}

void RankTrainer::decide_update() {
  store_->wait_reduced();
  if (gradient_hook_) gradient_hook_(*store_);
  StepStatistics statistics = statistics_.reduce(store_->shards(), read_losses());
  result_.loss = statistics.loss_sum / static_cast<double>(plan_.tokens_per_step());
  result_.loss_scale = loss_scaler_.scale();
  result_.grad_norm = statistics.gradient_norm / result_.loss_scale;
  result_.applied = statistics.non_finite == 0;
  result_.scale_can_shrink = !result_.applied && loss_scaler_.can_shrink();
  loss_scaler_.update(result_.applied ? Overflow::kNo : Overflow::kYes);
  result_.next_loss_scale = loss_scaler_.scale();
  result_.non_finite = std::move(statistics.first_non_finite);
  if (!result_.applied) return;
  result_.updates = ++updates_;
  result_.lr = lr_schedule_.at(updates_);
  update_scale_ = clip_factor(result_.grad_norm, plan_.config.optimizer.grad_clip) / result_.loss_scale;
}

StepResult RankTrainer::step(const LoadSamples& load) {
  const StepProgram& program = plan_.step_program(context_.rank());
  result_ = StepResult();
  result_.updates = updates_;
  std::optional<NoAllocationScope> no_allocation;
  if (plan_.config.debug.no_alloc && has_stepped_) no_allocation.emplace("a training step (debug.no_alloc)");
  std::array<char, 32> name{};  // as the trace has it
  if (device_.ranges() != nullptr) fmt::format_to_n(name.begin(), name.size() - 1, "step {}", updates_ + 1);
  const RangeScope range(device_.ranges(), name.data());
  const double start = monotonic_seconds();
  load_batch(load, batches_++, /*training=*/true);
  batch_seconds_ = monotonic_seconds() - start;
  stage_->set_micro_batches(micro_batches_, program);
  executor_.run(program, step_times_);
  has_stepped_ = true;
  return std::move(result_);
}

EvalResult RankTrainer::evaluate(const LoadSamples& load, std::int64_t batches, std::span<const std::int32_t> token_bytes) {
  const StepProgram& program = plan_.eval_program(context_.rank());
  double loss_sum = 0;
  std::int64_t bytes = 0;
  const RangeScope range(device_.ranges(), "evaluation");
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    load_batch(load, batch, /*training=*/false);
    stage_->set_micro_batches(micro_batches_, program);
    executor_.run(program, eval_times_);
    const std::span<const double> losses = read_losses();
    loss_sum += statistics_.reduce({}, losses).loss_sum;
    if (losses.empty() || token_bytes.empty()) continue;
    for (const std::int32_t id : host_batch_.targets) bytes += token_bytes[static_cast<std::size_t>(id)];
  }
  const double tokens = static_cast<double>(batches * plan_.tokens_per_step());
  EvalResult result{loss_sum / tokens, std::nullopt};
  if (!token_bytes.empty()) {
    context_.world().all_reduce(context_.host_stream(), TensorView(&bytes, DType::kI64, {1}), ReduceOp::kSum);
    result.bytes_per_token = static_cast<double>(bytes) / tokens;
  }
  return result;
}

// ---- what checkpoints store -------------------------------------------------------------------------------------------------------

TrainerPosition RankTrainer::position() const {
  return {updates_, batches_, sample_offset_ + batches_ * plan_.config.batch.global, loss_scaler_.state()};
}

void RankTrainer::restore(const TrainerPosition& position) {
  updates_ = position.updates;
  batches_ = position.batches;
  sample_offset_ = position.position - batches_ * plan_.config.batch.global;
  loss_scaler_.restore(position.loss_scale);
}

std::vector<ShardTensors> RankTrainer::shard_tensors() const {
  std::vector<ShardTensors> tensors;
  for (std::size_t i = 0; i < store_->shards().size(); ++i) {
    const ParamShard& shard = store_->shards()[i];
    ShardTensors& out = tensors.emplace_back(ShardTensors{shard.param, shard.master, {}});
    for (const TensorView& state : optimizer_->states(i)) out.states.emplace_back(state);
  }
  return tensors;
}

ShardHolder RankTrainer::shard_holder() {
  return {.tensor_degree = context_.grid().degrees().tensor,
          .tensor_rank = context_.coordinates().tensor,
          .data_shards = context_.data_reduce().size(),
          .data_rank = context_.data_reduce().rank(),
          .sharded = plan_.zero.shard_optimizer};
}

std::vector<int> RankTrainer::update_order() const {
  std::vector<int> units;
  for (const Instruction& i : plan_.step_program(context_.rank()).instructions) {
    if (i.kind == InstructionKind::kOptimizerStep) units.push_back(i.unit);
  }
  return units;
}

void RankTrainer::drain() {
  for (Stream* stream : {&context_.compute_stream(), &context_.reduce_stream(), &context_.gather_stream(), &context_.send_stream(Direction::kForward),
                         &context_.send_stream(Direction::kBackward), &context_.recv_stream(Direction::kForward),
                         &context_.recv_stream(Direction::kBackward)}) {
    stream->synchronize();
  }
  context_.world().barrier();
}

}  // namespace trident
