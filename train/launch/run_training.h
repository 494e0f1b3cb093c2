// A training run from configuration to last line: launch, plan, ranks, loop, logs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel/cuda/cuda_backend.h"
#include "train/config/train_config.h"
#include "train/log/console.h"
#include "train/run/run_forecast.h"
#include "train/run/run_inputs.h"
#include "train/run/sample_maker.h"

namespace trident {

// Services from above training. main() hands them in, so that training needs neither the planner nor generation. Each may be
// absent: a run is then without samples, without a prediction, or without a page.
struct TrainHooks {
  FindSamples find_samples = {};
  // ConfigError where run.hardware_profile is no profile of such devices. Asked before the run writes anything.
  std::function<void(const TrainConfig& config, DeviceKind device)> check_profile = {};
  // By rank 0, before ranks have memory; may add notes to the plan. `inputs` outlives what comes back.
  std::function<std::unique_ptr<RunForecast>(RunInputs& inputs, const RunHardware& hardware)> forecast = {};
  // With log.report, at the end of a run, also of one that failed: leaves report.html in the folder. What it throws ends no run.
  std::function<void(const std::string& folder)> report = {};
};

// Runs the configuration's ranks: this process is one of them when mpirun or srun started it as one of several, otherwise they are
// threads of it. `read_config` is called once, on every process. Everything that can be refused is refused before the run directory
// is made: ConfigError, DataError, StorageError. A rank that fails ends the others; the first cause is what is thrown, on rank 0 of
// several processes, or said by the lifeline, and ReportedElsewhere on the rest. SIGTERM, SIGUSR1 and SIGINT end the run at a step
// boundary: an Error with code 128 + signal.
void run_training(const std::function<TrainConfig()>& read_config, const TrainOutput& output, CudaBackend& cuda,
                  const TrainHooks& hooks);

}  // namespace trident
