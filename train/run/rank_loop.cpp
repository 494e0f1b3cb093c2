#include "train/run/rank_loop.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "core/available_memory.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "core/host_name.h"
#include "core/int_math.h"
#include "model/config/model_stats.h"
#include "train/plan/machine.h"
#include "train/run/between_steps.h"
#include "train/run/data_summary.h"
#include "train/run/dry_run.h"
#include "train/run/earlier_run.h"
#include "train/run/non_finite.h"
#include "train/run/reference.h"
#include "train/run/run_files.h"
#include "train/run/run_manifest.h"

namespace trident {

RankLoop::RankLoop(const RunInputs& inputs, const TrainOutput& output, JobRank here, const RankServices& services)
    : inputs_(inputs),
      plan_(inputs.plan),
      here_(std::move(here)),
      sink_(output, plan_.config.log),
      services_(services),
      trainer_(inputs.plan, here_.device, std::move(here_.world), here_.board, here_.on_device),
      checkpoints_(inputs, trainer_, here_.logger, sink_.errors()),
      loader_(train_loader(inputs, inputs.resume)) {
  say_ = [this](const std::string& line) { sink_.line(line); };
  last_steps_.reserve(kSpreadSteps);
  if (plan_.config.eval.every.ever()) validation_sets_ = validation_sets(inputs);
  if (const std::vector<std::int64_t>& steps = plan_.config.log.trace_steps; !steps.empty()) tracer_.emplace(trainer_, sink_, steps.front(), steps.back());
}

RunEnd RankLoop::run() {
  open();
  start_ = monotonic_seconds();
  if (rank() == 0) sink_.open_console(plan_.config.run.steps, updates());
  agree_to_stop();
  const bool misses = !validation_sets_.empty() && last_eval_at_ != updates() && is_at(plan_.config.eval.every) && goes_on();
  if (misses) evaluate();  // before the first step, or where a signal came before it
  set_phase(RunPhase::kTraining);
  if (goes_on()) sink_.doing("first step");
  while (goes_on()) one_step();
  summary_.seconds = monotonic_seconds() - start_;
  end_.signal = stop_signal_;
  end_.untrained = updates() == 0;
  end_.out_of_time = summary_.out_of_time;
  const bool evaluates = !validation_sets_.empty() && updates() > 0 && stop_signal_ == 0;  // who asks to stop does not wait
  if (evaluates && last_eval_at_ != updates()) evaluate();
  if (rank() == 0) summary_.resident_bytes = resident_memory_bytes();  // what follows still needs every rank
  save_what_is_left();
  checkpoints_.finish(say_);
  sink_.checkpoint(checkpoints_.committed_step());
  const bool is_committed = checkpoints_.saves() && (updates() == 0 || checkpoints_.committed_step() == updates());
  end_.saved = is_committed && can_go_on(plan_.config);
  end_.weights = is_committed && plan_.config.checkpoint.content == CheckpointContent::kWeights;
  end_.begins_anew = is_committed && !end_.saved && !end_.weights;
  end_.not_saved = checkpoints_.saves() && !is_committed;
  end_.older = checkpoints_.committed_step();
  end_.fault = checkpoints_.fault();
  if (services_.trained) services_.trained(end_);
  close();
  return end_;
}

// The last step is saved, whatever its number.
void RankLoop::save_what_is_left() {
  if (!checkpoints_.saves() || updates() == 0) return;
  set_phase(RunPhase::kSaving);
  checkpoints_.finish(say_);
  if (checkpoints_.committed_step() == updates()) return;
  checkpoints_.save(state(), say_);
}

// A checkpoint of this moment says this beside the tensors.
TrainingState RankLoop::state() {
  const TrainerPosition position = trainer_.position();
  TrainingState state;
  state.updates = position.updates;
  state.batches = position.batches;
  state.position = position.position;
  state.skipped = summary_.skipped;
  state.skipped_in_a_row = skipped_in_a_row_;
  state.samples = begun_.samples + new_updates() * plan_.config.batch.global;
  state.tokens = tokens();
  state.loss_scale = position.loss_scale.scale;
  state.loss_scale_clean_steps = position.loss_scale.clean_steps;
  state.loss_scale_overflows_left = position.loss_scale.overflows_left;
  state.best_valid_loss = checkpoints_.best_valid().loss;
  state.best_valid_step = checkpoints_.best_valid().step;
  state.last_eval = last_eval_at_;
  if (rank() == 0) {
    state.blend_start = loader_.blend_start().position;
    state.blend_taken = loader_.blend_start().taken;
    state.blend_now = loader_.taken_before(position.position);
  }
  const bool evaluated = summary_.last_valid && summary_.last_valid->step == updates();
  const double loss = evaluated ? summary_.last_valid->valid.loss : 0;  // not a number where no target counts
  if (evaluated && std::isfinite(loss) && (!state.best_valid_loss || loss < *state.best_valid_loss)) {
    state.best_valid_loss = loss;
    state.best_valid_step = updates();
  }
  return state;
}

void RankLoop::set_phase(RunPhase phase) {
  if (here_.board != nullptr) here_.board->set_phase(phase);
}

// Rank 0 creates the run directory once every rank has its memory, so that a run that cannot start leaves nothing behind.
void RankLoop::open() {
  // Also a barrier: everybody is here.
  const std::int64_t largest = over_ranks(world(), stream(), trainer_.arena_plan().total_bytes(), ReduceOp::kMax);
  begun_ = checkpoints_.begin(say_).value_or(TrainingState());
  skipped_in_a_row_ = static_cast<int>(begun_.skipped_in_a_row);
  summary_.skipped = begun_.skipped;
  taken_before_ = std::max<std::int64_t>(0, trainer_.position().position - plan_.config.batch.global);
  // An older one may have begun another rule of blending.
  if (const std::optional<Resume> resume = checkpoints_.resume(); resume && resume->folder != inputs_.resume->folder) loader_ = train_loader(inputs_, resume);
  if (rank() == 0) open_run_folder(largest);
  if (plan_.config.loss.is_dpo()) ask_reference();
  const std::vector<std::string> hosts = gather_texts(world(), stream(), host_name());
  // Weights were read by blocks through the heap, which glibc would keep for the whole run. Ranks that are threads have one heap.
  if ((checkpoints_.resume() || inputs_.initial) && (rank() == 0 || here_.board != nullptr)) ::malloc_trim(0);
  const std::string from = checkpoints_.resume() ? checkpoints_.resume()->folder : "";
  if (rank() == 0 && !leaves_files_)
    write_start_file([&] { run_start_ = write_run_start(plan_.config.run.dir, plan_, updates(), from, hosts); });
  // Everywhere: the last step whose evaluation is in the files. Also a barrier: the peak is measured while nobody else works.
  std::array<std::int64_t, 2> of_rank_0{last_eval_at_, run_start_};
  world().all_reduce(stream(), TensorView(of_rank_0.data(), DType::kI64, {2}), ReduceOp::kMax);
  last_eval_at_ = of_rank_0[0], run_start_ = of_rank_0[1];
  if (services_.progress != nullptr) services_.progress->updates = updates(), services_.progress->start = run_start_;
  const std::string folder = leaves_files_ ? "" : plan_.config.run.dir;
  write_start_file([&] { write_memory_file(folder, trainer_.context(), trainer_.arena_plan(), checkpoints_.staging_bytes()); });
}

// Collective. Only who trains asks about the training data, only who evaluates about the other.
void RankLoop::ask_reference() {
  PairReference reference = reference_of(inputs_, checkpoints_.tensors(), trainer_, here_.logger, say_,
                                         {.trains = goes_on(), .evaluates = !validation_sets_.empty()});
  trainer_.set_reference(std::move(reference.train));
  valid_reference_ = std::move(reference.valid);
  std::span<const float> rest = valid_reference_;
  for (ValidationSet& set : validation_sets_) {
    set.reference = rest.first(static_cast<std::size_t>(set.loader.sequences_per_epoch()));
    rest = rest.subspan(set.reference.size());
  }
}

// Files of an earlier start may stay as they are: a disk that is full since then does not keep a run from going on.
void RankLoop::write_start_file(FunctionRef<void()> write) {
  if (has_start_files_) sink_.errors().keep("", write, 0);
  else write();
}

void RankLoop::open_run_folder(std::int64_t largest) {
  const std::int64_t left = std::max<std::int64_t>(0, plan_.config.run.steps - updates());
  const std::int64_t taken = trainer_.position().position + left * plan_.config.batch.global;
  const DataSummary data = data_summary(plan_, inputs_.sources, taken);
  sink_.lines(opening_lines(plan_, here_.device.describe(), trainer_.arena_plan(), largest, data));
  for (const std::string& line : inputs_.warnings) here_.logger.warning("{}", line);
  for (const std::string& line : empty_share_warnings(plan_.config, inputs_.sources)) here_.logger.warning("{}", line);
  for (const std::string& line : here_.device.notes()) sink_.line(line);
  for (const std::string& line : trainer_.notes()) sink_.line(line);
  make_run_folder(plan_.config.run.dir);
  const bool goes_on = goes_on_in_run_dir(plan_.config, checkpoints_.resume());
  const std::string aside = goes_on ? "" : set_earlier_run_aside(plan_.config);
  const std::string checkpoints = checkpoints_.take_set_aside();
  if (!aside.empty())
    sink_.line(fmt::format("the files of an earlier run are in {} now{}{}; this run begins at step {}", aside,
                           checkpoints.empty() ? "" : "; ", checkpoints, updates() + 1));
  else if (!checkpoints.empty())
    sink_.line(checkpoints);
  // This comes before the configuration is written, which says whose the files are: whoever is killed in between starts again
  // without a question.
  refuse_if_written(plan_.config.run.dir);
  // The files of a run that is over keep what it was made with, whatever this start was asked for.
  leaves_files_ = goes_on && updates() >= plan_.config.run.steps && file_exists(plan_.config.run.dir + "/config.resolved.json");
  has_start_files_ = goes_on;
  if (!leaves_files_) write_start_file([&] { write_config_file(plan_.config.run.dir, checkpoints_.config()); });
  const RunLog& files = sink_.open_files(plan_, updates());
  remove_run_leftovers(plan_.config.run.dir);
  if (goes_on) {
    warn_of_gaps(files.earlier_steps());
    first_loss_ = first_logged_loss(plan_.config.run.dir);
    summary_.first_valid = first_logged_evaluation(plan_.config, config_of(*checkpoints_.resume()).config);
  }
  const bool is_over = updates() >= plan_.config.run.steps;
  if (updates() > 0)
    sink_.line(is_over ? fmt::format("the run is over at step {0}{1}: there is nothing to train; --set run.{2}s=N trains on to "
                                     "{2} N, --set run.overwrite=true begins anew and sets aside what is there", updates(),
                                     updates() > plan_.config.run.steps
                                         ? fmt::format(", beyond run.steps = {}", plan_.config.run.steps) : "",
                                     plan_.config.run.epochs ? "epoch" : "step")
                       : fmt::format("goes on from step {}", updates()));
  if (updates() > 0 && !is_over) {
    const std::string then = other_layout(checkpoints_.resume()->manifest, plan_);
    if (!then.empty()) sink_.line("its checkpoint was saved with " + then);
    if (const std::string end = goes_on ? bad_end(plan_.config.run.dir) : ""; !end.empty()) sink_.line("the last start " + end);
  }
  last_eval_at_ = files.last_evaluation();
  if (!leaves_files_) {
    const RunForecast::Predicted predicted = services_.forecast != nullptr ? services_.forecast->predicted()
                                                                           : RunForecast::Predicted{step_bytes_sent(plan_), {}};
    summary_.bytes_predicted = predicted.bytes_sent;
    write_start_file(
        [&] { write_plan_file(plan_.config.run.dir, plan_, trainer_.arena_plan(), predicted.bytes_sent, predicted.step); });
  }
  const auto measure = [this]() -> std::optional<double> {
    if (inputs_.peak_flops > 0) return inputs_.peak_flops;
    const std::optional<double> of_a_rank = measure_matmul_peak(here_.device, plan_.multiplied);
    return of_a_rank ? std::optional(*of_a_rank * inputs_.ranks_at_once) : std::nullopt;
  };
  const bool crowded = inputs_.ranks_at_once < plan_.grid.world_size();
  peak_flops_ = PeakFlops(measure, say_, crowded ? "there are more threads than cores" : "other programs had the cores");
}

// Warns about gaps in metrics.jsonl, which are not refilled.
void RankLoop::warn_of_gaps(const std::vector<std::int64_t>& steps) {
  constexpr std::size_t kShown = 3;
  const Resume resume = checkpoints_.resume().value();
  const std::int64_t then = config_of(resume).config.log.every, now = plan_.config.log.every;
  const std::vector<LineGap> gaps = line_gaps(steps, updates(), then == 0 || now == 0 ? 0 : std::max(then, now));
  if (gaps.empty()) return;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, gaps.size()); ++i)
    text += fmt::format("{}{} and {}", i == 0 ? "" : ", ", gaps[i].after, gaps[i].before);
  if (gaps.size() > kShown) text += fmt::format(", and in {} more places", gaps.size() - kShown);
  here_.logger.warning("{}/metrics.jsonl has no lines between steps {} (log.every = {}), and none are made again; put a copy "
                  "of the file back if it should have them",
                  plan_.config.run.dir, text, std::max(then, now));
}

// Rank 0's clock counts for all.
void RankLoop::agree_to_stop() {
  const double minutes = plan_.config.run.max_minutes;
  const bool time_is_up = rank() == 0 && minutes > 0 && monotonic_seconds() - start_ >= 60 * minutes;
  const StopVote mine{services_.stop != nullptr ? services_.stop->pending() : 0, time_is_up, checkpoints_.busy()};
  const StopVote vote = trident::agree_to_stop(world(), stream(), mine);
  if (!vote.busy) checkpoints_.advance(say_);
  sink_.checkpoint(checkpoints_.committed_step());
  stop_signal_ = vote.signal;
  summary_.out_of_time = vote.time_is_up && updates() < plan_.config.run.steps;
}

// Asks for the pages of a batch that a later step will load.
void RankLoop::prefetch(BatchLoader& loader, std::int64_t batch) {
  const GridCoordinates here = trainer_.context().coordinates();
  if (!plan_.loads_samples(here.pipeline)) return;
  BatchSlicing slicing = trainer_.slicing();
  if (&loader != &loader_) slicing.offset = 0;  // evaluations begin at the beginning
  loader.prefetch_step(slicing, batch, here.data);
}

void RankLoop::one_step() {
  trainer_.context().reset_bytes_sent();
  if (here_.board != nullptr) here_.board->set_step(updates() + 1);
  prefetch(loader_, updates() + summary_.skipped + 1);  // the next step's, while this one computes
  const std::int64_t update = updates() + 1;
  if (tracer_) tracer_->before_step(update);
  const std::array<double, kNumWaitedFor> waited = waited_for(trainer_.context(), trainer_.statistics_waited());
  const double before = monotonic_seconds();
  const StepResult result = trainer_.step(
      [this](std::int64_t first, std::int64_t count, const SampleSpans& spans) { loader_.load(first, count, spans); });
  const double after = monotonic_seconds(), seconds = after - before;
  note_times(waited, seconds);
  if (tracer_) tracer_->after_step(update, before, after);
  if (rank() == 0 && result.next_loss_scale != result.loss_scale)
    sink_.line(loss_scale_line(result, plan_.compute, updates(), LossScaler::kGrowthInterval));
  if (!result.applied) {
    if (result.counted == 0)
      warn_of_no_targets(world(), plan_.config, trainer_.position(), here_.logger);
    else if (!result.scale_can_shrink)
      warn_of_non_finite(world(), stream(), result, trainer_.position().batches, skipped_in_a_row_ + 1, here_.logger);
    ++summary_.skipped;
    if (!result.scale_can_shrink && ++skipped_in_a_row_ == kMaxSkippedInARow) refuse_to_go_on(world(), plan_, result, updates());
    return agree_to_stop();
  }
  skipped_in_a_row_ = 0;
  if (services_.progress != nullptr) services_.progress->updates = updates();
  agree_to_stop();
  if (new_updates() == 1) {
    first_update_at_ = after;
    summary_.first_loss = first_loss_.value_or(result.loss);
  }
  summary_.last_loss = result.loss, summary_.last_rewards = result.rewards;
  const bool ends = summary_.out_of_time || stop_signal_ != 0;
  if (is_logged(updates()) || ends) log(result, seconds);
  if (!is_logged(updates())) sink_.progress(metrics_of(result, seconds));
  if (!validation_sets_.empty() && is_at(plan_.config.eval.every) && stop_signal_ == 0) evaluate();
  if (goes_on() && checkpoints_.is_due(updates(), is_at(plan_.config.checkpoint.every.on_the_way()))) {
    checkpoints_.save(state(), say_);
    show_last_step();
  }
  taken_before_ = trainer_.position().position;
}

// Whether the interval names the last update; before the first one it does. Epochs go by the samples taken, by skipped steps, too.
bool RankLoop::is_at(const StepInterval& every) const {
  if (!every.epochs) return every.steps > 0 && updates() % every.steps == 0;
  const std::int64_t epoch = loader_.samples_per_epoch();
  return updates() == 0 || trainer_.position().position / epoch > taken_before_ / epoch;
}

// Collective, after a step of this start.
void RankLoop::show_last_step() {
  if (!plan_.config.log.report || new_updates() == 0) return;
  const std::vector<std::vector<InstructionTimes>> step = collect_last_step(trainer_);
  if (services_.forecast != nullptr) sink_.errors().keep("", [&] { services_.forecast->show_step(updates(), step); }, 0);
}

bool RankLoop::is_logged(std::int64_t update) const {
  return update == 1 || update == plan_.config.run.steps || (plan_.config.log.every > 0 && update % plan_.config.log.every == 0);
}

void RankLoop::note_times(const std::array<double, kNumWaitedFor>& waited_before, double seconds) {
  StepTimes times = step_times(plan_.step_program(rank()), trainer_.instruction_times(), trainer_.batch_times(), seconds);
  const std::array<double, kNumWaitedFor> waited = waited_for(trainer_.context(), trainer_.statistics_waited());
  for (std::size_t i = 0; i < waited.size(); ++i) times.waited_for[i] = waited[i] - waited_before[i];
  times.causes = trainer_.causes();
  since_log_ += times;
  if (++attempts_ <= 2) since_start_ = StepTimes(), last_steps_.clear();
  since_start_ += times;
  if (last_steps_.size() < kSpreadSteps) last_steps_.push_back(seconds);
  else last_steps_[static_cast<std::size_t>(attempts_) % kSpreadSteps] = seconds;
}

// A rank knows these of a step by itself.
StepMetrics RankLoop::metrics_of(const StepResult& result, double seconds) const {
  StepMetrics metrics;
  metrics.step = updates();
  metrics.loss = result.loss;
  metrics.grad_norm = result.grad_norm;
  metrics.lr = result.lr;
  if (plan_.compute == DType::kF16) metrics.loss_scale = result.loss_scale;
  metrics.skipped = summary_.skipped;
  metrics.tokens = tokens();
  metrics.loss_tokens = result.counted;
  metrics.token_accuracy = result.token_accuracy;
  metrics.rewards = result.rewards;
  metrics.step_ms = 1e3 * seconds;
  metrics.tokens_per_s = static_cast<double>(plan_.tokens_per_step()) / seconds;
  // Nothing before the first update comes again: an evaluation at the start, memory that is met for the first time.
  const double per_update =
      new_updates() == 1 ? seconds : (monotonic_seconds() - first_update_at_) / static_cast<double>(new_updates() - 1);
  metrics.seconds_left = per_update * static_cast<double>(plan_.config.run.steps - updates());
  return metrics;
}

// Model FLOPs of a token of this rank's samples with attention to the keys that it sees alone, and without logits that are left
// out, over model_flops_per_token().
double RankLoop::masked_flops_share() const {
  const BatchBuffers::Seen seen = trainer_.seen();
  const double computed =
      plan_.has_intervals() ? plan_.flops_per_token(seen.keys, seen.keys_in_window) : plan_.predicted_flops_per_token();
  return computed / model_flops_per_token(plan_.model, plan_.config.batch.sequence);
}

// Collective.
void RankLoop::log(const StepResult& result, double seconds) {
  const LogTotals totals =
      totals_for_log(world(), stream(),
                     {trainer_.context().bytes_sent(), trainer_.arena().planned_bytes(), trainer_.arena().high_water(),
                      static_cast<std::int64_t>(1e9 * checkpoints_.take_blocked_seconds()), since_log_});
  const auto steps = static_cast<std::int64_t>(since_log_.steps);
  since_log_ = StepTimes();
  summary_.bytes_counted = totals.bytes;
  summary_.planned_bytes = totals.planned_bytes, summary_.granted_bytes = totals.granted_bytes;
  if (rank() != 0) return;
  // Where another start takes up what this one saves on its way, no line tells of the stop.
  if (!is_logged(updates()) && checkpoints_.saves_on_the_way() && can_go_on(plan_.config)) return;
  StepMetrics metrics = metrics_of(result, seconds);
  const double flops_per_token = model_flops_per_token(plan_.model, plan_.config.batch.sequence);
  if (plan_.has_intervals() || plan_.head_flops_left_out() > 0) metrics.masked_flops_share = masked_flops_share();
  const double computed_share = metrics.masked_flops_share.value_or(1);
  metrics.mfu = peak_flops_.share(metrics.step, flops_per_token * metrics.tokens_per_s, say_, computed_share);
  metrics.peak_bytes = summary_.granted_bytes;
  std::ranges::transform(totals.bytes, metrics.comm_bytes.begin(), [](double sent) { return std::llround(sent); });
  std::optional<double> save_seconds;
  if (checkpoints_.saves_on_the_way()) save_seconds = 1e-9 * static_cast<double>(totals.save_nanoseconds);
  sink_.step(metrics, steps, totals.times, totals.busy, save_seconds);
}

void RankLoop::evaluate() {
  set_phase(RunPhase::kEvaluating);
  EvalResult mean;
  EvalMetrics metrics{.step = updates(), .valid = {}, .sets = {}};
  std::int64_t all_batches = 0, batches_before = 0;  // of the sets before
  double left_out = 0;                               // weight of the sets that have no loss
  const std::int64_t global = plan_.config.batch.global;
  for (const ValidationSet& set : validation_sets_) all_batches += ceil_div(set.samples, global);
  for (ValidationSet& set : validation_sets_) {
    const std::int64_t batches = ceil_div(set.samples, global);
    for (std::int64_t batch = 0; batch < batches; ++batch) prefetch(set.loader, batch);
    const EvalResult result = trainer_.evaluate(
        [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
          if (rank() == 0)
            sink_.doing(fmt::format("evaluating {}/{}", batches_before + first / global + 1, all_batches));
          set.loader.load(first, count, spans);
        },
        set.samples, inputs_.token_bytes, set.reference);
    batches_before += batches;
    if (validation_sets_.size() > 1) metrics.sets.push_back({set.name, valid_loss(result)});
    if (result.counted == 0) {
      left_out += set.weight;
      if (rank() == 0)
        here_.logger.warning(
            "no target of validation set {} counts ({}), valid_loss {}; {}", in_quotes(set.name), plan_.config.data.masked_by(),
            validation_sets_.size() > 1 ? "is the mean of the others" : "is not known", plan_.config.data.masks_remedy());
      continue;
    }
    mean.counted += result.counted;
    mean.loss += set.weight * result.loss;
    const auto add = [&](std::optional<double>& sum, const std::optional<double>& of_set) {
      if (of_set) sum = sum.value_or(0) + set.weight * *of_set;
    };
    add(mean.bytes_per_token, result.bytes_per_token);
    add(mean.token_accuracy, result.token_accuracy);
    if (!result.rewards) continue;
    PairRewards& rewards = mean.rewards ? *mean.rewards : mean.rewards.emplace();
    rewards.chosen += set.weight * result.rewards->chosen, rewards.rejected += set.weight * result.rewards->rejected;
    rewards.accuracy += set.weight * result.rewards->accuracy;
  }
  const double share = mean.counted == 0 ? 0 : 1 - left_out;
  mean.loss = share > 0 ? mean.loss / share : std::numeric_limits<double>::quiet_NaN();
  for (std::optional<double>* const part : {&mean.bytes_per_token, &mean.token_accuracy})
    if (*part) **part /= share;
  metrics.valid = valid_loss(mean);
  if (!summary_.first_valid) summary_.first_valid = metrics;
  summary_.last_valid = metrics;
  last_eval_at_ = updates();
  if (inputs_.samples) {
    const std::vector<TextSample> samples = inputs_.samples->make(trainer_.model());
    if (rank() == 0) sink_.samples(updates(), samples);
  }
  set_phase(RunPhase::kTraining);
  sink_.eval(metrics);
  show_last_step();
}

void RankLoop::close() {
  set_phase(RunPhase::kFinishing);
  sink_.close();
  const std::string trace = tracer_ ? tracer_->finish(updates()) : "";
  sink_.errors().warn_of_missing();
  trainer_.drain();
  const std::string& folder = plan_.config.run.dir;
  if (rank() == 0 && run_start_ != 0)
    sink_.errors().keep("", [&] { write_run_end(folder, plan_, run_start_, updates(), end_.exit_code(), end_.message()); }, 0);
  if (new_updates() == 0) {
    write_report();
    return;
  }
  summary_.step = updates();
  summary_.updates = new_updates();
  summary_.tokens = new_updates() * plan_.tokens_per_step();
  summary_.run_tokens = tokens();
  summary_.replayed_bubble = replay_bubble(plan_, collect_cpu_seconds(trainer_));
  show_last_step();
  summary_.bytes_between_nodes =
      over_ranks(world(), stream(), here_.inter_node_bytes ? here_.inter_node_bytes() : 0, ReduceOp::kSum);
  summary_.timed_steps = since_start_.steps;
  summary_.first_step_alone = attempts_ == 1;
  summary_.step_spread = middle_half(last_steps_);
  summary_.times = sum_over_ranks(since_start_, world(), stream()).mean();
  if (rank() != 0) return;
  if (!trace.empty()) sink_.line(trace);
  if (summary_.skipped > 0) sink_.line(trained_line(plan_, summary_));
  else sink_.detail(trained_line(plan_, summary_));
  const LogLines closing = closing_lines(plan_, summary_);
  const LogLines compared = services_.forecast != nullptr ? services_.forecast->compare(summary_) : LogLines();
  for (const char* name : {"run.log", "metrics.jsonl"})
    if (file_exists(fmt::format("{}/{}", folder, name))) summary_.files.emplace_back(name);
  if (write_report()) summary_.files.emplace_back("report.html");
  for (const LogLines& lines : {closing, compared, LogLines{result_lines(plan_, summary_, end_), {}}}) sink_.lines(lines);
  if (!end_.fault.empty() || end_.not_saved)
    here_.logger.warning("the model of step {} is lost: no checkpoint has it; \"next:\" says what to do", updates());
}

// Whether the page is there now. No page ends a run.
bool RankLoop::write_report() {
  if (rank() != 0 || leaves_files_ || !plan_.config.log.report || !services_.report) return false;
  try {
    services_.report(plan_.config.run.dir);
    return true;
  } catch (const std::exception& error) {
    sink_.line(fmt::format("no report.html: {}", error.what()));
    return false;
  }
}

}  // namespace trident
