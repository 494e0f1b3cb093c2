// Services from above training. main() hands them in, so that training needs neither the planner nor generation.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "train/run/run_forecast.h"
#include "train/run/run_inputs.h"
#include "train/run/sample_maker.h"

namespace trident {

// Each may be absent: a run is then without samples, without a prediction, or without a page.
struct TrainHooks {
  FindSamples find_samples = {};
  // ConfigError where run.hardware_profile is no profile of such devices. Asked before the run writes anything.
  std::function<void(const TrainConfig& config, DeviceKind device)> check_profile = {};
  // By rank 0, before ranks have memory; may add notes to the plan. `inputs` outlives what comes back.
  std::function<std::unique_ptr<RunForecast>(RunInputs& inputs, const RunHardware& hardware)> forecast = {};
  // With log.report, at the end of a run, also of one that failed: leaves report.html in the folder. What it throws ends no run.
  std::function<void(const std::string& folder)> report = {};
};

}  // namespace trident
