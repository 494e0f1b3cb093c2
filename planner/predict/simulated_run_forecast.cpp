#include "planner/predict/simulated_run_forecast.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <utility>

#include "core/file_io.h"
#include "planner/predict/forecast.h"
#include "planner/predict/run_page.h"

namespace trident {

SimulatedRunForecast::SimulatedRunForecast(const RunInputs& inputs, const RunHardware& hardware, RunPrices prices)
    : inputs_(inputs), hardware_(hardware), prices_(std::move(prices)) {}

// One dry step of each stage, which what the run sends is read from in any case.
RunForecast::Predicted SimulatedRunForecast::predicted() {
  const RunPlan& plan = inputs_.plan;
  if (prices_.prices == nullptr) return {step_bytes_sent(plan), {}};
  std::vector<DryRun> stages;
  try {
    Forecast forecast = forecast_run(plan, *prices_.prices, nullptr);
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
    memory.resident = std::llround(prices_.resident(static_cast<double>(all)));
  } catch (const Error&) {  // the profile does not say
  }
  return memory;
}

std::vector<std::string> SimulatedRunForecast::compare(const RunSummary& summary) {
  MeasuredRun run;
  run.times = summary.times;
  run.steps = summary.timed_steps;
  run.spread = summary.step_spread;
  run.first_step_alone = summary.first_step_alone;
  run.ranks = inputs_.plan.world_size();
  run.ranks_at_once = inputs_.ranks_at_once;
  run.on_host = hardware_.device == DeviceKind::kCpu;
  run.bubble_over_ideal = summary.replayed_bubble;
  run.arena = summary.granted_bytes;
  run.resident = summary.resident_bytes;
  const Comparison comparison = trident::compare(step_, prices_.why_not, memory(), run);
  std::vector<std::string> lines = to_lines(comparison);
  try {
    JsonValue json = to_json(comparison);
    json.set("last_step", summary.step);
    write_file(inputs_.plan.config.run.dir + "/comparison.json", to_json_text(json, 2) + "\n");
    if (inputs_.plan.config.log.report) write_report(summary, comparison);
  } catch (const Error& error) {
    lines.push_back(fmt::format("predicted beside measured could not be written: {}", error.what()));
  }
  return lines;
}

namespace {

// Lines that cannot be read, such as one that somebody is writing, are left out.
std::vector<JsonValue> records_of(const std::string& path) {
  std::vector<JsonValue> records;
  if (!file_exists(path)) return records;
  std::istringstream file(read_file(path));
  for (std::string line; std::getline(file, line);) {
    try {
      records.push_back(parse_json(line, path));
    } catch (const Error&) {
      continue;
    }
  }
  return records;
}

}  // namespace

void SimulatedRunForecast::write_report(const RunSummary& summary, const Comparison& comparison) const {
  const RunPlan& plan = inputs_.plan;
  const std::string& folder = plan.config.run.dir;
  RunPageFacts facts;
  facts.title = "Training run " + std::filesystem::path(folder).filename().string();
  facts.subtitle = model_line(plan);
  facts.lines = {layout_line(plan), fmt::format("compute in {} ({})", to_string(plan.compute), plan.compute_reason)};
  facts.lines.insert(facts.lines.end(), plan.notes.begin(), plan.notes.end());
  facts.metrics = records_of(folder + "/metrics.jsonl");
  facts.evals = records_of(folder + "/eval.jsonl");
  if (const std::string path = folder + "/memory.json"; file_exists(path)) facts.memory = parse_json(read_file(path), path);
  facts.comparison = comparison;
  std::vector<std::vector<StepSpan>> measured, simulated;
  for (const auto& rank : summary.last_step) {
    for (auto& spans = measured.emplace_back(); const InstructionTimes& t : rank) spans.push_back({t.start, t.end, t.waited});
  }
  for (const auto& rank : spans_) {
    for (auto& spans = simulated.emplace_back(); const InstructionSpan& t : rank) spans.push_back({t.start, t.end, 0});
  }
  if (hardware_.device == DeviceKind::kCpu && !measured.empty())
    facts.timelines.push_back(step_timeline("Measured: the last step", plan.step_programs, measured));
  if (!simulated.empty()) facts.timelines.push_back(step_timeline("Simulated by " + step_->profile, plan.step_programs, simulated));
  write_file(folder + "/report.html", to_html(run_page(facts)));
}

std::unique_ptr<RunForecast> make_run_forecast(RunInputs& inputs, const RunHardware& hardware) {
  RunPrices prices = prices_of(inputs.plan, hardware);
  note_missing_prices(prices, inputs.plan);
  return std::make_unique<SimulatedRunForecast>(inputs, hardware, std::move(prices));
}

}  // namespace trident
