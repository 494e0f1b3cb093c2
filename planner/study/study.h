// Prices the points of a study.
#pragma once

#include <functional>
#include <string>

#include "core/on_progress.h"
#include "parallel/cuda/cuda_backend.h"
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

// The longest that a point may be expected to take to be executed.
inline constexpr double kLongestPointSeconds = 60;

// On spec.cluster, of GPUs or of processors as plan cluster takes them; without one, or where points are executed and it names
// GPUs, on this machine's processors. `executes`: each point that fits trains a few steps on random tokens, its ranks as threads
// of this process, in a folder for temporary files that is removed; rates that are of another machine are said among what is held.
// Throws ConfigError: a cluster that is not there, shipped rates where none are named and this is another machine, numbers of GPUs
// where there is neither a cluster nor execution, device = cuda on processors. `progress`: of points.
StudyResult run_study_here(const StudySpec& spec, bool executes, CudaBackend& cuda, const OnProgress& progress = {});

}  // namespace trident
