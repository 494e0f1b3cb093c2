// What rank 0 writes about a run as it goes on: metrics.jsonl, eval.jsonl, timing.jsonl and TensorBoard events.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "train/metrics.h"
#include "train/run_plan.h"
#include "train/step_times.h"
#include "train/tensorboard_writer.h"

namespace trident {

// One line of timing.jsonl: step, steps (it is the mean of so many), step_ms, ms, cpu_ms and waited_ms by part, rest_ms,
// waited_for_ms by axis, busy_ms. `mean`: of a step and a rank. `busy`: seconds of a step that ranks did not wait; for one far above the mean
// the others wait.
std::string timing_line(std::int64_t step, std::int64_t steps, const StepTimes& mean, const Extremes& busy);

class RunLog {
 public:
  // Makes the files in run.dir, which exists and holds no others of their names (train/earlier_run.h). StorageError.
  explicit RunLog(const RunPlan& plan);

  // `times`: mean of a step and a rank over the `steps` steps since the last call.
  void step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy);
  void eval(const EvalMetrics& metrics);

 private:
  MetricsWriter metrics_, timing_;
  std::optional<MetricsWriter> eval_;
  std::optional<TensorBoardWriter> tensorboard_;
};

}  // namespace trident
