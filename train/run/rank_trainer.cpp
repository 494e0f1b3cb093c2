#include "train/run/rank_trainer.h"

#include <algorithm>

#include "core/clock.h"
#include "device/no_allocation.h"

namespace trident {
namespace {

LossScaler loss_scaler_of(const RunPlan& plan) {
  const LossScale& scale = plan.config.precision.loss_scale;
  const bool dynamic =
      scale.kind == LossScale::Kind::kDynamic || (scale.kind == LossScale::Kind::kByFormat && plan.compute == DType::kF16);
  return dynamic ? LossScaler::dynamic() : LossScaler::fixed(scale.fixed);
}

// `counts`: the sums over ranks of counts_here().
std::optional<double> token_accuracy(const TrainConfig& config, std::span<const std::int64_t> counts) {
  if (!config.counts_correct() || counts[0] == 0) return std::nullopt;
  return static_cast<double>(counts[1]) / static_cast<double>(counts[0]);
}

RewardSums rewards_in(std::span<const std::int64_t> counts) { return {counts[1], counts[2], counts[3], counts[4]}; }

}  // namespace

LrSchedule lr_schedule_of(const TrainConfig& config) {
  check_wsd_tail(config);
  LrSchedule schedule;
  schedule.type = config.lr_schedule.type;
  schedule.lr = config.optimizer.lr;
  schedule.min_lr = config.lr_schedule.min_lr;
  schedule.decay_steps = decay_length(config);
  schedule.warmup_steps = config.lr_schedule.warmup.within(schedule.decay_steps);
  schedule.wsd_decay_steps = config.lr_schedule.wsd_decay_steps.value_or(ScheduleLength()).within(schedule.decay_steps);
  schedule.wsd_decay = config.lr_schedule.wsd_decay_type;
  // The last step of a decay may have the rate 0: a step that comes alone would change nothing.
  if (config.lr_schedule.adds_one_step && schedule.at(config.run.steps) == 0) ++schedule.decay_steps;
  return schedule;
}

RankTrainer::RankTrainer(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world, StatusBoard* board, const OnDevice& on_device)
    : plan_(plan),
      model_(plan, device, std::move(world), board, on_device),
      statistics_(model_.context(), model_.arena_plan()),
      batch_buffers_(plan, device, model_.context().coordinates().pipeline, LossDetail::kOfBatches, model_.arena_plan()),
      lr_schedule_(lr_schedule_of(plan.config)),
      loss_scaler_(loss_scaler_of(plan)) {
  TRIDENT_CHECK(plan.trains(), "a forward-only plan cannot train");
  const bool at_random = plan.config.precision.stochastic_rounding;
  const WeightRounding rounding = at_random ? WeightRounding::kStochastic : WeightRounding::kNearest;
  optimizer_ = std::make_unique<ShardedOptimizer>(plan.config.optimizer, rounding, store(), context(), model_.arena_plan());
  model_.allocate();
  optimizer_->bind(model_.arena());
  statistics_.bind(model_.arena());
  batch_buffers_.bind(model_.arena());
  bind_handlers();
}

void RankTrainer::load_batch(const LoadSamples& load, std::int64_t batch, bool training) {
  const RangeScope range(device().ranges(), "batch");
  BatchSlicing slicing = this->slicing();
  if (!training) slicing.offset = 0;
  batch_buffers_.load(load, batch, slicing, context().coordinates().data);
  batch_buffers_.set_positions({}, model_.stage().constants(), batch, slicing, context().coordinates().data);
  const std::int64_t divisor = training && plan_.counts_targets() ? sum_on_last(batch_buffers_.counted()) : plan_.tokens_per_step();
  if (plan_.config.loss.weighs_rows()) weigh_rows(divisor, training);
  for (MicroBatch& mb : batch_buffers_.micro_batches()) {
    mb.step = batch;
    mb.training = training;
    mb.adapts = true;
    // The one division. The scale is a power of two: the product is rounded as the quotient is.
    mb.gradient_scale = divisor == 0 ? 0.0f : static_cast<float>(loss_scaler_.scale() / static_cast<double>(divisor));
  }
}

// Adds up what the ranks of the last stage counted in the global batch. Only they divide by it and have it.
std::int64_t RankTrainer::sum_on_last(std::int64_t counted) {
  return plan_.is_last(context().coordinates().pipeline) ? sum_over_batch(context(), counted) : 0;
}

// All sequences, or pairs, together weigh what the `counted` targets would, so that these stay the divisor. Evaluations weigh
// targets alike.
void RankTrainer::weigh_rows(std::int64_t counted, bool training) {
  batch_buffers_.use_row_weights(training);
  if (!training) return;
  const std::int64_t sequences = sum_on_last(batch_buffers_.sequences());
  const double targets = static_cast<double>(counted) / static_cast<double>(std::max<std::int64_t>(1, sequences));
  if (plan_.config.loss.is_dpo()) return batch_buffers_.weigh_pairs(2 * targets, reference_);
  batch_buffers_.weigh_sequences(targets);
}

void RankTrainer::refer(const LoadSamples& load, std::int64_t samples, std::span<float> into, Adapters adapters) {
  const StepProgram& program = plan_.eval_program(context().rank());
  const BatchSlicing slicing{plan_.config.batch.global, plan_.config.batch.micro, plan_.grid.degrees().data};
  for (std::int64_t batch = 0; batch * slicing.global < samples; ++batch) {
    load_batch(load, batch, /*training=*/false);
    for (MicroBatch& mb : batch_buffers_.micro_batches()) mb.adapts = adapters == Adapters::kOn;
    model_.stage().set_micro_batches(batch_buffers_.micro_batches(), program);
    model_.executor().run(program, eval_times_);
    if (!model_.reports_losses() || batch_buffers_.read_token_losses().empty()) continue;
    for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k)
      for (std::int64_t i = 0; i < slicing.micro; ++i) {
        if (slicing.first_sample(batch, k, context().coordinates().data) + i >= samples) continue;
        batch_buffers_.refer_pairs(k, i, into);
      }
  }
}

// Returns what this rank adds to the counts that travel with the statistics, once losses are computed: each target once.
std::span<const std::int64_t> RankTrainer::counts_here() {
  counts_ = {};
  if (model_.reports_losses() && plan_.config.loss.is_dpo()) {
    const RewardSums& rewards = batch_buffers_.rewards();
    counts_ = {batch_buffers_.counted(), rewards.pairs, rewards.wins, rewards.chosen, rewards.rejected};
  } else if (model_.reports_losses()) {
    counts_ = {batch_buffers_.counted(), batch_buffers_.read_correct()};
  }
  return std::span(counts_).first(plan_.config.num_counts());
}

// The losses this rank reports, once they are computed.
std::span<const double> RankTrainer::read_losses() {
  if (!model_.reports_losses()) return {};
  return batch_buffers_.read_losses();
}

// ---- the step -------------------------------------------------------------------------------------------------------------------------

std::vector<std::string> RankTrainer::notes() const {
  std::vector<std::string> notes(model_.notes().begin(), model_.notes().end());
  // No schedule rises after its warm-up. A resumed run that ends at 0, as schedules do, has learned what it should.
  if (updates_ == 0 && lr_schedule_.at(1) == 0)
    notes.emplace_back("the learning rate of every step that is left is 0, at which lr_schedule ends: nothing is learned; set "
                       "lr_schedule.type=constant, or a larger lr_schedule.decay_steps");
  return notes;
}

void RankTrainer::bind_handlers() {
  Executor& executor = model_.executor();
  executor.bind(InstructionKind::kGradNorm, [this, &executor](const Instruction&) {
    causes_.tensor = held_seconds() - held_before_;
    store().wait_reduced();
    const InstructionTimes reduced = executor.so_far();
    decide_update();
    causes_.reduced = reduced.end - reduced.start, causes_.reduced_cpu = reduced.cpu, causes_.reduced_waited = reduced.waited;
    statistics_waited_ += executor.so_far().waited - reduced.waited;
  });
  executor.bind(InstructionKind::kOptimizerStep, [this](const Instruction& i) {
    if (!result_.applied) return;
    if (update_hook_) update_hook_(i.unit);
    device().run_capturable([&] { optimizer_->step(i.unit, result_.updates, result_.lr, update_scale_); });
    store().masters_updated();
  });
}

double RankTrainer::held_seconds() { return context().compute_stream().held_seconds().value_or(0); }

void RankTrainer::decide_update() {
  if (gradient_hook_) gradient_hook_(store());
  StepStatistics statistics = statistics_.reduce(store().shards(), read_losses(), counts_here());
  result_.loss_scale = result_.next_loss_scale = loss_scaler_.scale();
  // Nothing is loaded without bytes: such a step counts all targets, on every rank.
  if (plan_.counts_targets()) result_.counted = device().has_bytes() ? statistics.counts[0] : plan_.tokens_per_step();
  result_.token_accuracy = token_accuracy(plan_.config, statistics.counts);
  if (plan_.config.loss.is_dpo()) result_.rewards = mean_of(rewards_in(statistics.counts));
  result_.applied = result_.counted != 0;
  if (!result_.applied) return;
  result_.loss = statistics.loss_sum / static_cast<double>(result_.counted.value_or(plan_.tokens_per_step()));
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
  const StepProgram& program = plan_.step_program(context().rank());
  result_ = StepResult();
  result_.updates = updates_;
  std::optional<NoAllocationScope> no_allocation;
  if (plan_.config.debug.no_alloc && has_stepped_) no_allocation.emplace("a training step (debug.no_alloc)");
  std::array<char, 32> name{};  // as the trace has it
  if (device().ranges() != nullptr) fmt::format_to_n(name.begin(), name.size() - 1, "step {}", updates_ + 1);
  const RangeScope range(device().ranges(), name.data());
  const double start = monotonic_seconds(), waited_before = device().waited_seconds();
  load_batch(load, batches_++, /*training=*/true);
  const double end = monotonic_seconds(), waited = device().waited_seconds() - waited_before;  // for the other ranks' counts
  batch_times_ = {start, end, end - start - waited, waited};
  statistics_waited_ += waited;
  model_.stage().set_micro_batches(batch_buffers_.micro_batches(), program);
  held_before_ = held_seconds();
  model_.executor().run(program, step_times_);
  has_stepped_ = true;
  return std::move(result_);
}

EvalResult RankTrainer::evaluate(const LoadSamples& load, std::int64_t samples, std::span<const std::int32_t> token_bytes,
                                 std::span<const float> reference) {
  const StepProgram& program = plan_.eval_program(context().rank());
  const bool of_pairs = plan_.config.loss.is_dpo();
  double loss_sum = 0;
  std::int64_t bytes = 0;
  std::array<std::int64_t, kMostCounts> counts{};
  const RangeScope range(device().ranges(), "evaluation");
  const LoadSamples load_counted = [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    load(first, count, spans);
    for (std::int64_t i = std::max<std::int64_t>(0, samples - first); i < count; ++i) {
      for (std::int64_t at = i; at < std::ssize(spans.targets); at += count) spans.targets[static_cast<std::size_t>(at)] = -1;
      if (!spans.numbers.empty()) spans.numbers[static_cast<std::size_t>(i)] = -1;
    }
  };
  const std::int64_t global = plan_.config.batch.global;
  for (std::int64_t batch = 0; batch * global < samples; ++batch) {
    load_batch(load_counted, batch, /*training=*/false);
    if (of_pairs) batch_buffers_.weigh_pairs(1, reference);
    model_.stage().set_micro_batches(batch_buffers_.micro_batches(), program);
    model_.executor().run(program, eval_times_);
    for (std::int64_t k = 0; of_pairs && model_.reports_losses() && k < plan_.num_micro_batches; ++k) batch_buffers_.judge_pairs(k);
    const std::span<const double> losses = read_losses();
    const StepStatistics statistics = statistics_.reduce({}, losses, counts_here());
    loss_sum += statistics.loss_sum;
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += statistics.counts[i];
    if (!plan_.counts_targets()) counts[0] += std::min(global, samples - batch * global) * plan_.config.batch.sequence;
    if (losses.empty() || token_bytes.empty()) continue;
    for (const std::int32_t id : batch_buffers_.targets())
      if (id >= 0) bytes += token_bytes[static_cast<std::size_t>(id)];
  }
  const auto tokens = static_cast<double>(counts[0]);
  EvalResult result{.loss = loss_sum / tokens, .counted = counts[0], .token_accuracy = token_accuracy(plan_.config, counts)};
  if (of_pairs) {
    const RewardSums rewards = rewards_in(counts);
    result.loss = loss_sum / static_cast<double>(rewards.pairs), result.rewards = mean_of(rewards);
    return result;
  }
  if (!token_bytes.empty()) {
    context().world().all_reduce(context().host_stream(), TensorView(&bytes, DType::kI64, {1}), ReduceOp::kSum);
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
  for (std::size_t i = 0; i < store().shards().size(); ++i) {
    const ParamShard& shard = store().shards()[i];
    ShardTensors& out = tensors.emplace_back(ShardTensors{shard.param, shard.master, {}});
    for (const TensorView& state : optimizer_->states(i)) out.states.emplace_back(state);
  }
  return tensors;
}

std::vector<int> RankTrainer::update_order() const {
  std::vector<int> units;
  for (const Instruction& i : plan_.step_program(model_.context().rank()).instructions) {
    if (i.kind == InstructionKind::kOptimizerStep) units.push_back(i.unit);
  }
  return units;
}

}  // namespace trident
