// Rank 0 writes these while a run goes on: metrics.jsonl, eval.jsonl, timing.jsonl, samples.jsonl, run.log, TensorBoard
// events and the file of log.prometheus.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/log/log_errors.h"
#include "train/log/metrics.h"
#include "train/log/prometheus.h"
#include "train/log/step_times.h"
#include "train/log/tensorboard_writer.h"
#include "train/log/text_sample.h"
#include "train/plan/run_plan.h"

namespace trident {

// One line of timing.jsonl: step, steps (it is the mean of so many), step_ms, ms, cpu_ms and waited_ms by part, rest_ms,
// waited_for_ms by axis, busy_ms, and save_ms where the run saves. `mean`: of a step and a rank. `busy`: seconds of a step that ranks
// did not wait; for one far above the mean the others wait. `save_seconds`: that checkpoints held up the rank that they held up longest, in
// all of these steps together.
std::string timing_line(std::int64_t step, std::int64_t steps, const StepTimes& mean, const Extremes& busy,
                        std::optional<double> save_seconds = std::nullopt);

// Steps of a metrics.jsonl between which lines are missing, up to `step`, behind which the next line will follow; `every`: the
// log.every that it was written with, 0 for none. A run may have had larger spacings before, and its first lines in another folder:
// a gap as large as one beside it is none, and nothing is said of what stands before the first line.
struct LineGap {
  std::int64_t after = 0, before = 0;
  bool operator==(const LineGap&) const = default;
};
std::vector<LineGap> line_gaps(const std::vector<std::int64_t>& steps, std::int64_t step, std::int64_t every);

class RunLog {
 public:
  // Makes the files in run.dir, which exists, or goes on with those of its run that are there: what they say of steps after `step`,
  // which will be made again, is cut off, and lines that cannot be read are taken out by replacing the file. StorageError. What
  // fails later is for `errors`, which outlives it.
  // `start`: as MetricsWriter's.
  RunLog(const RunPlan& plan, LogErrors& errors, std::int64_t step, double start);

  // The steps up to `step` that metrics.jsonl had lines of when it was opened.
  const std::vector<std::int64_t>& earlier_steps() const { return earlier_steps_; }

  // The step of the last line of eval.jsonl that was there; -1: none.
  std::int64_t last_evaluation() const { return last_evaluation_; }

  // `times`: mean of a step and a rank over the `steps` steps since the last call.
  void step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy,
            std::optional<double> save_seconds = std::nullopt);
  void eval(const EvalMetrics& metrics);
  // The samples of the evaluation after `step` updates, before its eval(): an evaluation without a line is repeated.
  void samples(std::int64_t step, std::span<const TextSample> samples);
  // The step of the newest checkpoint that can be read, which may be the one said before; -1: none.
  void checkpoint(std::int64_t step);
  void said(const std::string& lines);  // whole ones, for run.log

 private:
  void to_tensorboard(FunctionRef<void(TensorBoardWriter&)> write);
  void write_prometheus();
  void to_prometheus();

  LogErrors& errors_;
  std::vector<std::int64_t> earlier_steps_;
  MetricsWriter metrics_;
  AppendFile said_;
  std::optional<MetricsWriter> timing_, eval_, samples_;
  std::optional<TensorBoardWriter> tensorboard_;  // nothing: the configuration wants none
  std::optional<std::string> prometheus_;  // log.prometheus
  RunGauges gauges_;
  std::int64_t last_evaluation_ = -1;
};

}  // namespace trident
