#include "planner/predict/simulated_run_forecast.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/file_io.h"
#include "planner/predict/forecast.h"
#include "planner/predict/plan_timeline.h"
#include "report/timeline_data.h"
#include "train/plan/step_flops.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

constexpr std::size_t kMostReportSpans = 2000;  // of a step, all stages together

}  // namespace

SimulatedRunForecast::SimulatedRunForecast(const RunInputs& inputs, const RunHardware& hardware, RunPrices prices)
    : inputs_(inputs), hardware_(hardware), prices_(std::move(prices)) {}

// One dry step of each stage, which what the run sends is read from in any case.
RunForecast::Predicted SimulatedRunForecast::predicted() {
  const RunPlan& plan = inputs_.plan;
  if (prices_.prices == nullptr) return {step_bytes_sent(plan), {}};
  std::vector<DryRun> stages;
  try {
    const std::shared_ptr<Ops> oracle = hardware_.device == DeviceKind::kCpu
                                            ? processor_here(plan)
                                            : std::shared_ptr<Ops>(any_gpu(plan.config.cuda.deterministic));
    Forecast forecast = forecast_run(plan, *prices_.prices, oracle.get());
    stages = std::move(forecast.stages);
    step_ = predicted_step(prices_.profile, forecast.step, forecast.price, *prices_.prices);
    if (plan.config.log.report) spans_ = std::move(forecast.price.spans);
    return {bytes_of_all_ranks(plan, stages), to_json(*step_)};
  } catch (const Error& error) {  // a call that the profile has no price of
    prices_.why_not = error.what();
    return {step_bytes_sent(plan), {}};
  }
}

PredictedMemory SimulatedRunForecast::memory() const {
  PredictedMemory memory;
  const std::vector<std::int64_t>& arenas = inputs_.dry_arenas;
  memory.arena = *std::ranges::max_element(arenas);
  // Ranks that are processes of a job have the launcher's library beside what the profile was measured with.
  const bool all_here = hardware_.ranks_of_process == inputs_.plan.world_size();
  if (!prices_.resident || !all_here) return memory;
  const auto ranks_of_a_stage = inputs_.plan.world_size() / static_cast<std::int64_t>(arenas.size());
  const std::int64_t all = std::reduce(arenas.begin(), arenas.end()) * ranks_of_a_stage;
  try {
    memory.resident = std::llround(prices_.resident(static_cast<double>(all))) + inputs_.dry_staging;
  } catch (const Error&) {  // the profile does not say
  }
  return memory;
}

LogLines SimulatedRunForecast::compare(const RunSummary& summary) {
  MeasuredRun run{summary};
  run.ranks = inputs_.plan.world_size();
  run.stages = inputs_.plan.grid.degrees().pipeline;
  run.ranks_at_once = inputs_.ranks_at_once;
  run.one_machine = inputs_.one_machine;
  run.profile_of_another = prices_.of_another;
  run.on_host = hardware_.device == DeviceKind::kCpu;
  run.bubble_of_flops = inputs_.plan.predicted_bubble;
  const Comparison comparison = trident::compare(step_, prices_.why_not, memory(), run);
  LogLines lines = to_lines(comparison);
  try {
    JsonValue json = to_json(comparison);
    json.set("last_step", summary.step);
    write_file(inputs_.plan.config.run.dir + "/comparison.json", to_json_text(json, 2) + "\n");
  } catch (const Error& error) {
    lines.shown.push_back(fmt::format("predicted beside measured could not be written: {}", error.what()));
  }
  return lines;
}

// "<folder>/last_step.json": {"step", "measured": timeline_json(), "simulated": the same}, each where it is known.
void SimulatedRunForecast::show_step(std::int64_t step, const std::vector<std::vector<InstructionTimes>>& last_step) {
  const RunPlan& plan = inputs_.plan;
  const std::size_t most = std::max<std::size_t>(1, kMostReportSpans / plan.step_programs.size());
  std::string text = fmt::format("{{\"step\":{}", step);
  const auto add = [&](std::string_view name, const std::string& title, const std::vector<std::vector<InstructionTimes>>& spans) {
    if (spans.empty()) return;
    text += fmt::format(",\"{}\":{}", name, timeline_json(step_timeline(title, plan.step_programs, spans, most)));
  };
  const auto simulated = [](const std::vector<std::vector<TaskTimes>>& ranks, double scale) {
    std::vector<std::vector<InstructionTimes>> spans;
    for (const auto& rank : ranks)
      for (auto& of_rank = spans.emplace_back(); const TaskTimes& t : rank)
        of_rank.push_back({.start = t.start * scale, .end = t.end * scale});
    return spans;
  };
  const bool measured = hardware_.device == DeviceKind::kCpu;
  if (measured) add("measured", fmt::format("Measured: step {}", step), last_step);
  if (step_) {
    add("simulated", fmt::format("Simulated by {}", step_->profile), simulated(spans_, 1));
  } else if (plan.config.log.report) {
    double seconds = 0;
    for (const auto& rank : last_step)
      for (const InstructionTimes& t : rank) seconds = std::max(seconds, measured ? t.end : 0);
    const StepTimeline flops = flops_timeline(plan);
    const std::string title = fmt::format("Simulated by FLOPs alone, as no profile fits; drawn as long as {}",
                                          seconds > 0 ? "the measured step" : "a second");
    add("simulated", title, simulated(flops.ranks, (seconds > 0 ? seconds : 1) / flops.makespan));
  }
  write_file(plan.config.run.dir + "/last_step.json", text + "}\n");
}

std::unique_ptr<RunForecast> make_run_forecast(RunInputs& inputs, const RunHardware& hardware) {
  RunPrices prices = prices_of(inputs.plan, hardware);
  note_missing_prices(prices, inputs.plan);
  return std::make_unique<SimulatedRunForecast>(inputs, hardware, std::move(prices));
}

}  // namespace trident
