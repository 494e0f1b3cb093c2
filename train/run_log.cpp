#include "train/run_log.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"

namespace trident {
namespace {

JsonValue by_part(const std::array<double, kNumStepParts>& seconds) {
  JsonValue out;
  for (std::size_t i = 0; i < kNumStepParts; ++i) out.set(to_string(static_cast<StepPart>(i)), 1e3 * seconds[i]);
  return out;
}

// Tags as TensorBoard groups them: by what stands before the slash. The names of parts and axes outlive the call.
std::vector<Scalar> scalars_of(const StepMetrics& m, const std::vector<std::pair<std::string, double>>& named) {
  std::vector<Scalar> scalars{{"train/loss", m.loss},
                              {"train/grad_norm", m.grad_norm},
                              {"train/lr", m.lr},
                              {"train/tokens", static_cast<double>(m.tokens)},
                              {"perf/step_ms", m.step_ms},
                              {"perf/tokens_per_s", m.tokens_per_s},
                              {"mem/peak_allocated_bytes", static_cast<double>(m.peak_bytes)}};
  if (m.mfu) scalars.push_back({"perf/mfu", *m.mfu});
  if (m.loss_scale) scalars.push_back({"train/loss_scale", *m.loss_scale});
  for (const auto& [tag, value] : named) scalars.push_back({tag, value});
  return scalars;
}

}  // namespace

std::string timing_line(std::int64_t step, std::int64_t steps, const StepTimes& mean, const Extremes& busy) {
  JsonValue line, waited_for, busy_ms;
  for (std::size_t i = 0; i < kNumWaitedFor; ++i) waited_for.set(to_string(static_cast<WaitedFor>(i)), 1e3 * mean.waited_for[i]);
  busy_ms.set("min", 1e3 * busy.min);
  busy_ms.set("mean", 1e3 * busy.mean);
  busy_ms.set("max", 1e3 * busy.max);
  busy_ms.set("slowest_rank", busy.largest);
  line.set("step", step);
  line.set("steps", steps);
  line.set("step_ms", 1e3 * mean.step);
  line.set("ms", by_part(mean.wall));
  line.set("rest_ms", 1e3 * mean.rest());
  line.set("cpu_ms", by_part(mean.cpu));
  line.set("waited_ms", by_part(mean.waited));
  line.set("waited_for_ms", std::move(waited_for));
  line.set("busy_ms", std::move(busy_ms));
  return to_json_text(line);
}

RunLog::RunLog(const RunPlan& plan)
    : metrics_(plan.config.run.dir + "/metrics.jsonl"), timing_(plan.config.run.dir + "/timing.jsonl") {
  if (plan.config.eval.every > 0) eval_.emplace(plan.config.run.dir + "/eval.jsonl");
  if (!plan.config.log.tensorboard) return;
  tensorboard_.emplace(plan.config.run.dir, 0);
  tensorboard_->text("config", "```json\n" + to_json_text(to_json(plan.config), 2) + "\n```");
}

void RunLog::step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy) {
  metrics_.write(metrics);
  timing_.write_line(timing_line(metrics.step, steps, times, busy));
  if (!tensorboard_) return;
  std::vector<std::pair<std::string, double>> named{{"train/skipped_steps", static_cast<double>(metrics.skipped)},
                                                    {"comm_bytes/tp", static_cast<double>(metrics.comm_bytes.tp)},
                                                    {"comm_bytes/cp", static_cast<double>(metrics.comm_bytes.cp)},
                                                    {"comm_bytes/dp", static_cast<double>(metrics.comm_bytes.dp)},
                                                    {"comm_bytes/pp", static_cast<double>(metrics.comm_bytes.pp)},
                                                    {"time_ms/busiest_rank", 1e3 * busy.max}};
  for (std::size_t i = 0; i < kNumStepParts; ++i)
    named.emplace_back(fmt::format("time_ms/{}", to_string(static_cast<StepPart>(i))), 1e3 * times.wall[i]);
  for (std::size_t i = 0; i < kNumWaitedFor; ++i) {
    named.emplace_back(fmt::format("perf/comm_exposed_ms.{}", to_string(static_cast<WaitedFor>(i))), 1e3 * times.waited_for[i]);
  }
  tensorboard_->scalars(metrics.step, scalars_of(metrics, named));
}

void RunLog::eval(const EvalMetrics& metrics) {
  eval_.value().write(metrics);
  if (!tensorboard_) return;
  std::vector<std::pair<std::string, double>> named;
  const auto add = [&](const std::string& suffix, const ValidLoss& valid) {
    named.emplace_back("val/loss" + suffix, valid.loss);
    named.emplace_back("val/ppl" + suffix, valid.perplexity());
    if (valid.bits_per_byte) named.emplace_back("val/bpb" + suffix, *valid.bits_per_byte);
  };
  add("", metrics.valid);
  for (const auto& [name, valid] : metrics.sets) add("." + name, valid);
  std::vector<Scalar> scalars;
  for (const auto& [tag, value] : named) scalars.push_back({tag, value});
  tensorboard_->scalars(metrics.step, scalars);
}

}  // namespace trident
