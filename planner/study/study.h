// Prices the points of a study.
#pragma once

#include <functional>
#include <string>

#include "core/on_progress.h"
#include "planner/price/cluster.h"
#include "planner/price/cpu_rates.h"
#include "planner/study/study_result.h"

namespace trident {

// The hardware that points are planned for and priced on.
struct StudyHardware {
  std::string name;
  std::string counted_as = "GPU";  // as in StudyResult
  // Fills what a row that can be has, but for comparisons and measurements. ConfigError: why it cannot be.
  std::function<void(const PointConfig& point, StudyRow& row)> price;
};

// GPUs of `cluster`: rows are what plan_on() (planner/predict/cluster_forecast.h) says. ConfigError: as hardware_of().
StudyHardware cluster_hardware(const Cluster& cluster);

// Processors with these rates, of this machine or another; ranks are threads of one process. More threads than cores take the work
// of all ranks over the cores, and nobody waits for others.
StudyHardware processor_hardware(const CpuRates& rates);

// ConfigError where a configuration asks for GPUs: device = cuda.
void check_on_processors(const TrainConfig& config);

// Executes a point that was priced: fills row.measured, or row.not_run.
using ExecutePoint = std::function<void(const PointConfig& point, StudyRow& row)>;

// One row for each point, whether it can be or not; with comparisons and causes. A point that cannot be (ConfigError of its
// configuration, its plan, or the hardware) has its reason. `execute`: not set, nothing is executed. `progress`: of points.
StudyResult run_study(const StudySpec& spec, const StudyHardware& hardware, const ExecutePoint& execute = {},
                      const OnProgress& progress = {});

}  // namespace trident
