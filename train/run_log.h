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
// waited_for_ms by axis, busy_ms, and save_ms where the run saves. `mean`: of a step and a rank. `busy`: seconds of a step that ranks
// did not wait; for one far above the mean the others wait. `save_seconds`: that checkpoints held up the rank that they held up longest, in
// all of these steps together.
std::string timing_line(std::int64_t step, std::int64_t steps, const StepTimes& mean, const Extremes& busy,
                        std::optional<double> save_seconds = std::nullopt);

class RunLog {
 public:
  // Makes the files in run.dir, which exists, or goes on with those of its run that are there: what they say of steps after `step`,
  // which will be made again, is cut off by replacing the file. StorageError.
  explicit RunLog(const RunPlan& plan, std::int64_t step = 0);

  // The step of the last line of eval.jsonl that was there; -1: none.
  std::int64_t last_evaluation() const { return last_evaluation_; }

  // `times`: mean of a step and a rank over the `steps` steps since the last call.
  void step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy,
            std::optional<double> save_seconds = std::nullopt);
  void eval(const EvalMetrics& metrics);

 private:
  MetricsWriter metrics_, timing_;
  std::optional<MetricsWriter> eval_;
  std::optional<TensorBoardWriter> tensorboard_;
  std::int64_t last_evaluation_ = -1;
};

}  // namespace trident
