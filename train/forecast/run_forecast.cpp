#include "train/forecast/run_forecast.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "core/file_io.h"
#include "core/resident_memory.h"
#include "train/forecast/forecast.h"

namespace trident {

RunForecast::RunForecast(const RunInputs& inputs, const RunHardware& hardware, RunPrices prices)
    : inputs_(inputs), hardware_(hardware), prices_(std::move(prices)) {}

// One dry step of each stage, which what the run sends is read from in any case.
RunOutlook::Predicted RunForecast::predicted() {
  const RunPlan& plan = inputs_.plan;
  if (prices_.prices == nullptr) return {step_bytes_sent(plan), {}};
  std::vector<DryRun> stages;
  try {
    Forecast forecast = forecast_run(plan, *prices_.prices, nullptr);
    stages = std::move(forecast.stages);
    step_ = predicted_step(prices_.profile, forecast.step, forecast.price, *prices_.prices);
    return {bytes_of_all_ranks(plan, stages), to_json(*step_)};
  } catch (const Error& error) {  // a call that the profile has no price of
    prices_.why_not = error.what();
    return {step_bytes_sent(plan), {}};
  }
}

PredictedMemory RunForecast::memory() const {
  PredictedMemory memory;
  const std::vector<std::int64_t>& arenas = inputs_.dry_arenas;
  memory.arena = *std::ranges::max_element(arenas);
  if (!prices_.resident) return memory;
  const auto stages = static_cast<std::int64_t>(arenas.size());
  const bool all_here = hardware_.ranks_of_process == inputs_.plan.world_size();
  const std::int64_t here = all_here ? std::reduce(arenas.begin(), arenas.end()) * (inputs_.plan.world_size() / stages) : arenas.front();
  memory.resident = std::llround(prices_.resident(static_cast<double>(here)));
  return memory;
}

std::vector<std::string> RunForecast::compare(const RunSummary& summary) {
  MeasuredRun run;
  run.times = summary.times;
  run.steps = summary.timed_steps;
  run.ranks = inputs_.plan.world_size();
  run.ranks_at_once = inputs_.ranks_at_once;
  run.on_host = hardware_.device == DeviceKind::kCpu;
  run.bubble_over_ideal = summary.replayed_bubble;
  run.arena = summary.granted_bytes;
  if (const auto resident = resident_memory()) run.resident = resident->own + resident->shared + resident->files;
  const Comparison comparison = trident::compare(step_, prices_.why_not, memory(), run);
  std::vector<std::string> lines = to_lines(comparison);
  try {
    JsonValue json = to_json(comparison);
    json.set("last_step", summary.step);
    write_file(inputs_.plan.config.run.dir + "/comparison.json", to_json_text(json, 2) + "\n");
  } catch (const StorageError& error) {
    lines.push_back(fmt::format("comparison.json is not written: {}", error.what()));
  }
  return lines;
}

}  // namespace trident
