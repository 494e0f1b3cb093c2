#include "train/rank_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/clock.h"
#include "model/model_stats.h"
#include "train/data_lines.h"
#include "train/earlier_run.h"
#include "train/machine.h"
#include "train/run_files.h"

namespace trident {
namespace {

constexpr int kMaxSkippedInARow = 10;  // non-finite gradients: after as many batches the run has no future

}  // namespace

RankLoop::RankLoop(const RunInputs& inputs, const TrainOutput& output, Device& device, std::unique_ptr<Communicator> world,
                   const RankServices& services)
    : inputs_(inputs),
      plan_(inputs.plan),
      output_(output),
      logger_(output.log, world->rank()),
      device_(device),
      services_(services),
      trainer_(inputs.plan, device, std::move(world), services.board, services.on_device),
      loader_(train_loader(inputs)) {
  rank_ = trainer_.context().rank();
  if (plan_.config.eval.every > 0) validation_sets_ = validation_sets(inputs);
  if (const std::vector<std::int64_t>& steps = plan_.config.log.trace_steps; !steps.empty()) tracer_.emplace(trainer_, steps.front(), steps.back());
}

int RankLoop::run() {
  open();
  const double start = monotonic_seconds();
  if (rank() == 0) console_.emplace(output_.console, output_.mode, plan_.config.run.steps, 0, start);
  agree_to_stop(start);
  if (!validation_sets_.empty() && goes_on()) summary_.first_valid = evaluate();
  set_phase(RunPhase::kTraining);
  while (goes_on()) one_step(start);
  summary_.seconds = monotonic_seconds() - start;
  const bool evaluates = !validation_sets_.empty() && updates_ > 0 && stop_signal_ == 0;  // who asks to stop does not wait for an evaluation
  if (evaluates) summary_.last_valid = last_eval_at_ == updates_ ? last_eval_ : evaluate();
  if (services_.trained) services_.trained(stop_signal_);
  close();
  return stop_signal_;
}

void RankLoop::set_phase(RunPhase phase) {
  if (services_.board != nullptr) services_.board->set_phase(phase);
}

// Rank 0 creates the run directory once every rank has its memory, so that a run that cannot start leaves nothing behind.
void RankLoop::open() {
  const std::int64_t largest = largest_arena();  // also a barrier: everybody is here
  if (rank() == 0) open_run_folder(largest);
  trainer_.context().world().barrier();  // the peak is measured while nobody else works
  write_memory_file(plan_.config.run.dir, trainer_.context(), trainer_.arena_plan());
}

void RankLoop::open_run_folder(std::int64_t largest) {
  for (const std::string& line : opening_lines(plan_, device_.describe(), trainer_.arena_plan(), largest)) output_.console << line << '\n';
  for (const std::string& line : data_lines(plan_, inputs_.sources)) output_.console << line << '\n';
  for (const std::string& line : device_.notes()) output_.console << line << '\n';
  for (const std::string& line : trainer_.notes()) output_.console << line << '\n';
  make_run_folder(plan_.config.run.dir);
  const std::string aside = set_earlier_run_aside(plan_.config.run.dir);
  if (!aside.empty()) output_.console << "the files of an earlier run are in " << aside << " now; this run begins at step 1\n";
  run_log_.emplace(plan_);  // first: it refuses a folder that another run is writing
  write_config_file(plan_.config.run.dir, plan_.config);
  write_plan_file(plan_.config.run.dir, plan_, trainer_.arena_plan());
  peak_flops_ = inputs_.peak_flops > 0 ? inputs_.peak_flops : measure_matmul_rate(device_, plan_.compute, 0.2) * inputs_.ranks_at_once;
}

// Signals reach ranks at different moments and clocks differ: the highest signal that any rank got and rank 0's clock decide for all.
void RankLoop::agree_to_stop(double start) {
  const double minutes = plan_.config.run.max_minutes;
  const bool time_is_up = rank() == 0 && minutes > 0 && monotonic_seconds() - start >= 60 * minutes;
  std::int32_t asked[2] = {services_.stop != nullptr ? services_.stop->pending() : 0, time_is_up ? 1 : 0};
  Stream& stream = trainer_.context().host_stream();
  trainer_.context().world().all_reduce(stream, TensorView(asked, DType::kI32, {2}), ReduceOp::kMax);
  stream.synchronize();
  stop_signal_ = asked[0];
  summary_.out_of_time = asked[1] != 0 && updates_ < plan_.config.run.steps;
}

// Asks for the pages of a batch that a later step will load. The stages between the first and the last load nothing.
void RankLoop::prefetch(BatchLoader& loader, std::int64_t batch) {
  const GridCoordinates here = trainer_.context().coordinates();
  if (here.pipeline > 0 && here.pipeline < plan_.grid.degrees().pipeline - 1) return;
  loader.prefetch_step({plan_.config.batch.global, plan_.config.batch.micro, plan_.grid.degrees().data}, batch, here.data);
}

void RankLoop::one_step(double start) {
  trainer_.context().reset_bytes_sent();
  if (services_.board != nullptr) services_.board->set_step(updates_ + 1);
  prefetch(loader_, updates_ + summary_.skipped + 1);  // the next step's, while this one computes
  const std::int64_t update = updates_ + 1;
  if (tracer_) tracer_->before_step(update);
  const std::array<double, kNumWaitedFor> waited = waited_for(trainer_.context());
  const double before = monotonic_seconds();
  const StepResult result = trainer_.step([this](std::int64_t first, std::int64_t count, auto tokens, auto targets) {
    loader_.load(first, count, tokens, targets);
  });
  const double after = monotonic_seconds(), seconds = after - before;
  note_times(waited, seconds);
  if (tracer_) tracer_->after_step(update, before, after);
  if (rank() == 0) note_loss_scale(result);
  if (!result.applied && !result.scale_can_shrink) warn_of_non_finite(result);
  if (!result.applied) {
    ++summary_.skipped;
    if (!result.scale_can_shrink && ++skipped_in_a_row_ == kMaxSkippedInARow) refuse_to_go_on(result);
    return agree_to_stop(start);
  }
  skipped_in_a_row_ = 0;
  updates_ = result.updates;
  agree_to_stop(start);
  if (updates_ == 1) summary_.first_loss = result.loss;
  summary_.last_loss = result.loss;
  if (is_logged(updates_)) log(result, seconds);
  if (rank() == 0 && !is_logged(updates_)) console_->progress(updates_, monotonic_seconds());
  if (!validation_sets_.empty() && updates_ % plan_.config.eval.every == 0 && stop_signal_ == 0) evaluate();
}

// Collective. The first rank that has something to name says so for all.
void RankLoop::warn_of_non_finite(const StepResult& result) {
  Communicator& world = trainer_.context().world();
  Stream& stream = trainer_.context().host_stream();
  std::int32_t ranks = result.non_finite.empty() ? 0 : 1;
  const int first = first_rank(world, stream, ranks != 0);
  world.all_reduce(stream, TensorView(&ranks, DType::kI32, {1}), ReduceOp::kSum);
  stream.synchronize();
  if (rank() != first) return;
  logger_.warning("gradient is not finite, no rank applies the update: {}{}", result.non_finite,
                  ranks == 1 ? "" : fmt::format(" (and parameters of {} more rank{})", ranks - 1, ranks == 2 ? "" : "s"));
}

// Says when the scale changes.
void RankLoop::note_loss_scale(const StepResult& result) {
  if (result.next_loss_scale == result.loss_scale) return;
  console_->line(fmt::format("loss scale {:.0f} -> {:.0f}: {}", result.loss_scale, result.next_loss_scale,
                             result.applied ? fmt::format("{} steps without an overflow", trainer_.loss_scaler().options().growth_interval)
                                            : fmt::format("gradients overflowed {}, the batch after update {} is skipped",
                                                          to_string(plan_.compute), updates_)));
}

void RankLoop::refuse_to_go_on(const StepResult& result) const {
  const std::string what = fmt::format("{} batches in a row had non-finite gradients after update {}", kMaxSkippedInARow, updates_);
  if (plan_.compute != DType::kF16) throw Error(ExitCode::kNoProgress, what + "; lower optimizer.lr or look at the data");
  const bool fixed = plan_.config.precision.loss_scale.kind == LossScale::Kind::kFixed;
  throw Error(ExitCode::kNoProgress,
              fmt::format("{} at loss scale {:.0f}, {}", what, result.loss_scale,
                          fixed ? "which is fixed; lower precision.loss_scale or set it to \"dynamic\""
                                : "the smallest; lower optimizer.lr, look at the data or set precision.compute to \"bf16\""));
}

bool RankLoop::is_logged(std::int64_t update) const {
  return update == 1 || update == plan_.config.run.steps || summary_.out_of_time || stop_signal_ != 0 || (plan_.config.log.every > 0 && update % plan_.config.log.every == 0);
}

void RankLoop::note_times(const std::array<double, kNumWaitedFor>& waited_before, double seconds) {
  StepTimes times = step_times(plan_.step_program(rank()), trainer_.instruction_times(), trainer_.batch_seconds(), seconds);
  const std::array<double, kNumWaitedFor> waited = waited_for(trainer_.context());
  for (std::size_t i = 0; i < waited.size(); ++i) times.waited_for[i] = waited[i] - waited_before[i];
  since_log_ += times;
  if (++attempts_ == 2) since_start_ = StepTimes();
  since_start_ += times;
}

// Collective: bytes and times are summed, the arena's high-water mark maximised over ranks.
void RankLoop::log(const StepResult& result, double seconds) {
  std::array<double, kNumAxes> bytes = trainer_.context().bytes_sent();
  Communicator& world = trainer_.context().world();
  Stream& stream = trainer_.context().host_stream();
  world.all_reduce(stream, TensorView(bytes.data(), DType::kF64, {kNumAxes}), ReduceOp::kSum);
  std::int64_t memory[2] = {trainer_.arena().planned_bytes(), trainer_.arena().high_water()};
  world.all_reduce(stream, TensorView(memory, DType::kI64, {2}), ReduceOp::kMax);
  stream.synchronize();
  const Extremes busy = busy_seconds(since_log_, world, stream);
  const StepTimes times = sum_over_ranks(since_log_, world, stream).mean();
  const auto steps = static_cast<std::int64_t>(since_log_.steps);
  since_log_ = StepTimes();
  summary_.bytes_counted = bytes;
  summary_.planned_bytes = memory[0];
  summary_.granted_bytes = memory[1];
  if (rank() != 0) return;
  const double tokens = static_cast<double>(plan_.tokens_per_step());
  const auto sent = [&](Axis axis) { return std::llround(bytes[static_cast<std::size_t>(axis)]); };
  StepMetrics metrics;
  metrics.step = updates_;
  metrics.loss = result.loss;
  metrics.grad_norm = result.grad_norm;
  metrics.lr = result.lr;
  if (plan_.compute == DType::kF16) metrics.loss_scale = result.loss_scale;
  metrics.skipped = summary_.skipped;
  metrics.tokens = updates_ * plan_.tokens_per_step();
  metrics.step_ms = 1e3 * seconds;
  metrics.tokens_per_s = tokens / seconds;
  metrics.mfu = model_flops_per_token(plan_.model, plan_.config.batch.sequence) * metrics.tokens_per_s / peak_flops_;
  metrics.peak_bytes = summary_.granted_bytes;
  metrics.comm_bytes = {sent(Axis::kTensor), sent(Axis::kContext), sent(Axis::kData), sent(Axis::kPipeline)};
  run_log_->step(metrics, steps, times, busy);
  console_->step(metrics, monotonic_seconds());
}

EvalMetrics RankLoop::evaluate() {
  set_phase(RunPhase::kEvaluating);
  EvalResult mean;
  EvalMetrics metrics;
  metrics.step = updates_;
  for (ValidationSet& set : validation_sets_) {
    for (std::int64_t batch = 0; batch < plan_.config.eval.steps; ++batch) prefetch(set.loader, batch);
    const EvalResult result = trainer_.evaluate(
        [&set](std::int64_t first, std::int64_t count, auto tokens, auto targets) { set.loader.load(first, count, tokens, targets); },
        plan_.config.eval.steps, inputs_.token_bytes);
    mean.loss += set.weight * result.loss;
    if (result.bytes_per_token) mean.bytes_per_token = mean.bytes_per_token.value_or(0) + set.weight * *result.bytes_per_token;
    if (validation_sets_.size() > 1) metrics.sets.push_back({set.name, valid_loss(result)});
  }
  metrics.valid = valid_loss(mean);
  last_eval_ = metrics;
  last_eval_at_ = updates_;
  set_phase(RunPhase::kTraining);
  if (rank() == 0) {
    run_log_->eval(metrics);
    console_->eval(metrics);
  }
  return metrics;
}

// Collective.
std::int64_t RankLoop::largest_arena() {
  std::int64_t bytes = trainer_.arena_plan().total_bytes();
  Stream& stream = trainer_.context().host_stream();
  trainer_.context().world().all_reduce(stream, TensorView(&bytes, DType::kI64, {1}), ReduceOp::kMax);
  stream.synchronize();
  return bytes;
}

// Collective.
std::int64_t RankLoop::total_bytes_between_nodes() {
  std::int64_t bytes = services_.inter_node_bytes ? services_.inter_node_bytes() : 0;
  Stream& stream = trainer_.context().host_stream();
  trainer_.context().world().all_reduce(stream, TensorView(&bytes, DType::kI64, {1}), ReduceOp::kSum);
  stream.synchronize();
  return bytes;
}

void RankLoop::close() {
  set_phase(RunPhase::kFinishing);
  const std::optional<std::string> trace = tracer_ ? tracer_->finish() : std::nullopt;
  trainer_.drain();
  if (updates_ == 0) return;
  summary_.updates = updates_;
  summary_.tokens = updates_ * plan_.tokens_per_step();
  summary_.replayed_bubble = replay_bubble(plan_, collect_cpu_seconds(trainer_, plan_));
  summary_.bytes_between_nodes = total_bytes_between_nodes();
  summary_.times = sum_over_ranks(since_start_, trainer_.context().world(), trainer_.context().host_stream()).mean();
  if (rank() != 0) return;
  console_->finish();
  if (trace) console_->line("trace: " + *trace + " (open it with ui.perfetto.dev)");
  if (tracer_ && !trace) console_->line("no trace: the run ended before the first of log.trace_steps");
  for (const std::string& line : closing_lines(plan_, summary_)) console_->line(line);
}

}  // namespace trident
