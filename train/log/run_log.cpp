#include "train/log/run_log.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/at.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/json_by_name.h"

namespace trident {
namespace {

JsonValue milliseconds(double seconds) { return 1e3 * seconds; }
JsonValue by_part(const std::array<double, kNumStepParts>& seconds) { return json_by_name<StepPart>(seconds, milliseconds); }

// Tags as TensorBoard groups them: by what stands before the slash.
std::vector<Scalar> scalars_of(const StepMetrics& m) {
  std::vector<Scalar> scalars{{"train/loss", m.loss},
                              {"train/grad_norm", m.grad_norm},
                              {"train/lr", m.lr},
                              {"train/tokens", static_cast<double>(m.tokens)},
                              {"perf/step_ms", m.step_ms},
                              {"perf/tokens_per_s", m.tokens_per_s},
                              {"mem/peak_allocated_bytes", static_cast<double>(m.peak_bytes)}};
  if (m.mfu) scalars.push_back({"perf/mfu", *m.mfu});
  if (m.mfu && m.masked_flops_share) scalars.push_back({"perf/mfu_masked", *m.computed_mfu()});
  if (m.loss_scale) scalars.push_back({"train/loss_scale", *m.loss_scale});
  if (m.token_accuracy) scalars.push_back({"train/mean_token_accuracy", *m.token_accuracy});
  if (m.rewards) {
    scalars.push_back({"rewards/chosen", m.rewards->chosen});
    scalars.push_back({"rewards/rejected", m.rewards->rejected});
    scalars.push_back({"rewards/accuracy", m.rewards->accuracy});
    scalars.push_back({"rewards/margin", m.rewards->margin()});
  }
  return scalars;
}

}  // namespace

std::string timing_line(std::int64_t step, std::int64_t steps, const StepTimes& mean, const Extremes& busy, std::optional<double> save_seconds) {
  JsonValue line(JsonValue::Object{{"step", step},
                                   {"steps", steps},
                                   {"step_ms", 1e3 * mean.step},
                                   {"ms", by_part(mean.wall)},
                                   {"rest_ms", 1e3 * mean.rest()},
                                   {"cpu_ms", by_part(mean.cpu)},
                                   {"waited_ms", by_part(mean.waited)},
                                   {"waited_for_ms", json_by_name<WaitedFor>(mean.waited_for, milliseconds)},
                                   {"busy_ms", JsonValue::Object{{"min", 1e3 * busy.min},
                                                                 {"mean", 1e3 * busy.mean},
                                                                 {"max", 1e3 * busy.max},
                                                                 {"slowest_rank", busy.largest}}}});
  if (save_seconds) line.set("save_ms", 1e3 * *save_seconds);
  return to_json_text(line);
}

namespace {

constexpr const char *kMetricsLog = "metrics.jsonl", *kTimingLog = "timing.jsonl", *kEvalLog = "eval.jsonl",
                     *kSamplesLog = "samples.jsonl", *kRunLog = "run.log";

std::string path_in(const RunPlan& plan, std::string_view log) { return fmt::format("{}/{}", plan.config.run.dir, log); }

// The step that a line of one of these files speaks of; nothing for what is none.
std::optional<std::int64_t> step_of_line(std::string_view line) {
  try {
    const JsonRules rules{.comments = false, .max_bytes = line.size(), .blame = ExitCode::kData};
    return parse_json(line, "a line", rules).integer_at("step");
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Leaves the file with its lines of steps up to `step`, and returns those. A line that cannot be read is lost alone; where others
// stand behind it, it is said.
std::vector<std::int64_t> cut_behind(const std::string& path, std::int64_t step, const LogErrors& errors) {
  if (!file_exists(path)) return {};
  AppendFile file(path, AppendFile::Start::kAppend);  // refuses one that another run is writing
  const std::string text = read_file(path);
  std::string kept;
  std::vector<std::int64_t> steps;
  std::int64_t damaged = 0, lost = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::optional<std::int64_t> of_line = step_of_line(line);
    if (!of_line) ++damaged;
    if (!of_line || *of_line > step) continue;
    steps.push_back(*of_line);
    kept.append(line) += '\n';
    lost = damaged;
  }
  if (kept.size() < text.size() && text.starts_with(kept)) file.cut(std::ssize(kept));
  else if (kept != text) write_file(path, kept);
  if (lost > 0)
    errors.logger().warning("{}: {} cannot be read, and {} taken out; put a copy of the file back if it should be whole", path,
                            counted(lost, "line"), lost == 1 ? "is" : "are");
  return steps;
}

}  // namespace

std::vector<LineGap> line_gaps(const std::vector<std::int64_t>& steps, std::int64_t step, std::int64_t every) {
  if (every == 0 || step == 0) return {};
  std::vector<std::int64_t> edges = steps;
  if (edges.empty() || edges.front() == 1) edges.insert(edges.begin(), 0);
  edges.push_back(step + 1);
  const auto spacing = [&](std::size_t i) { return i > 0 && i < edges.size() ? edges[i] - edges[i - 1] : 0; };  // before edge i
  std::vector<LineGap> gaps;
  for (std::size_t i = 1; i < edges.size(); ++i) {
    const std::int64_t next = i + 2 < edges.size() ? spacing(i + 1) : 0;  // behind the last line nothing has a spacing yet
    if (spacing(i) > std::max({every, spacing(i - 1), next})) gaps.push_back({edges[i - 1], edges[i]});
  }
  return gaps;
}

RunLog::RunLog(const RunPlan& plan, LogErrors& errors, std::int64_t step, double start)
    : errors_(errors),
      earlier_steps_(cut_behind(path_in(plan, kMetricsLog), step, errors)),
      metrics_(path_in(plan, kMetricsLog), start),
      said_(path_in(plan, kRunLog), AppendFile::Start::kAppend),
      prometheus_(plan.config.log.prometheus) {
  cut_behind(path_in(plan, kTimingLog), step, errors);
  timing_.emplace(path_in(plan, kTimingLog), start);
  const std::vector<std::int64_t> evaluated = cut_behind(path_in(plan, kEvalLog), step, errors);
  last_evaluation_ = evaluated.empty() ? -1 : evaluated.back();
  if (plan.config.eval.every.ever()) eval_.emplace(path_in(plan, kEvalLog), start);
  // A file of evaluations that was rotated says nothing of earlier samples; those of this step are made again.
  cut_behind(path_in(plan, kSamplesLog), evaluated.empty() ? step - 1 : last_evaluation_, errors);
  if (plan.config.eval.has_samples()) samples_.emplace(path_in(plan, kSamplesLog), start);
  gauges_.run = plan.config.run.dir;
  gauges_.steps = plan.config.run.steps;
  if (step > 0) gauges_.checkpoint = step;
  if (prometheus_) remove_temporaries(*prometheus_);
  if (step > 0) to_prometheus();
  else if (prometheus_) write_prometheus();  // a new run is refused where this file cannot be
  if (!plan.config.log.tensorboard) return;
  const std::string config = "```json\n" + to_json_text(to_json(plan.config), 2) + "\n```";
  tensorboard_.emplace(plan.config.run.dir, step == 0 ? 0 : step + 1, config);
}

void RunLog::said(const std::string& lines) {
  errors_.keep(kRunLog, [&] { said_.append(lines); }, std::ranges::count(lines, '\n'));
}

void RunLog::write_prometheus() {
  gauges_.time = unix_seconds();
  write_file(prometheus_.value(), prometheus_text(gauges_));
}

void RunLog::to_prometheus() {
  if (prometheus_) errors_.keep(*prometheus_, [&] { write_prometheus(); }, 0);
}

void RunLog::checkpoint(std::int64_t step) {
  if (step < 0 || gauges_.checkpoint == step) return;
  gauges_.checkpoint = step;
  gauges_.checkpoint_time = unix_seconds();
  to_prometheus();
}

void RunLog::to_tensorboard(FunctionRef<void(TensorBoardWriter&)> write) {
  if (tensorboard_) errors_.keep("TensorBoard's events", [&] { write(*tensorboard_); });
}

void RunLog::step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy,
                  std::optional<double> save_seconds) {
  errors_.keep(kMetricsLog, [&] { metrics_.write_line(to_json_line(metrics)); });
  errors_.keep(kTimingLog, [&] { timing_->write_line(timing_line(metrics.step, steps, times, busy, save_seconds)); });
  std::vector<Scalar> scalars = scalars_of(metrics);
  scalars.push_back({"train/skipped_steps", static_cast<double>(metrics.skipped)});
  scalars.push_back({"time_ms/busiest_rank", 1e3 * busy.max});
  for (int axis = 0; axis < kNumAxes; ++axis)
    scalars.push_back({fmt::format("comm_bytes/{}", to_string(static_cast<Axis>(axis))),
                       static_cast<double>(at(metrics.comm_bytes, axis))});
  for (std::size_t i = 0; i < kNumStepParts; ++i)
    scalars.push_back({fmt::format("time_ms/{}", to_string(static_cast<StepPart>(i))), 1e3 * times.wall[i]});
  for (std::size_t i = 0; i < kNumWaitedFor; ++i)
    scalars.push_back({fmt::format("perf/comm_exposed_ms.{}", to_string(static_cast<WaitedFor>(i))), 1e3 * times.waited_for[i]});
  to_tensorboard([&](TensorBoardWriter& board) { board.scalars(metrics.step, scalars); });
  gauges_.logged = metrics;
  to_prometheus();
}

void RunLog::samples(std::int64_t step, std::span<const TextSample> samples) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    errors_.keep(kSamplesLog, [&] { samples_.value().write_line(to_json_line(step, samples[i])); });
    to_tensorboard([&](TensorBoardWriter& board) { board.text(step, fmt::format("samples/{}", i), to_markdown(samples[i])); });
  }
}

void RunLog::eval(const EvalMetrics& metrics) {
  errors_.keep(kEvalLog, [&] { eval_.value().write_line(to_json_line(metrics)); });
  std::vector<Scalar> scalars;
  const auto add = [&](const std::string& suffix, const ValidLoss& valid) {
    scalars.push_back({"val/loss" + suffix, valid.loss});
    if (!valid.rewards) scalars.push_back({"val/ppl" + suffix, valid.perplexity()});
    if (valid.token_accuracy) scalars.push_back({"val/mean_token_accuracy" + suffix, *valid.token_accuracy});
    if (valid.rewards) {
      scalars.push_back({"val/rewards_accuracy" + suffix, valid.rewards->accuracy});
      scalars.push_back({"val/rewards_margin" + suffix, valid.rewards->margin()});
    }
    if (valid.bits_per_byte) scalars.push_back({"val/bpb" + suffix, *valid.bits_per_byte});
  };
  add("", metrics.valid);
  for (const auto& [name, valid] : metrics.sets) add("." + name, valid);
  to_tensorboard([&](TensorBoardWriter& board) { board.scalars(metrics.step, scalars); });
  gauges_.valid_loss = metrics.valid.loss;
  to_prometheus();
}

}  // namespace trident
