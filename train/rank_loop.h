// The loop of one rank: steps, evaluations, and on rank 0 everything that a person or a file gets to see of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/batch_loader.h"
#include "parallel/communicator.h"
#include "train/console.h"
#include "train/metrics.h"
#include "train/rank_trainer.h"
#include "train/run_inputs.h"
#include "train/run_report.h"
#include "train/trainer.h"

namespace trident {

class RankLoop {
 public:
  // Collective over `world`. `inputs`, `output` and `device` outlive the loop.
  RankLoop(const RunInputs& inputs, const TrainOutput& output, Device& device, std::unique_ptr<Communicator> world);

  // From the run directory to the closing lines. Collective.
  void run();

 private:
  int rank() const { return rank_; }
  void open();
  void open_run_folder();
  bool out_of_time(double start);
  void one_step(double start);
  bool is_logged(std::int64_t update) const;
  void log(const StepResult& result, double seconds);
  EvalResult evaluate();
  void close();

  const RunInputs& inputs_;
  const RunPlan& plan_;
  const TrainOutput& output_;
  Logger logger_;
  Device& device_;
  RankTrainer trainer_;
  BatchLoader loader_;
  std::optional<BatchLoader> valid_loader_;
  std::optional<MetricsWriter> metrics_, eval_metrics_;
  std::optional<Console> console_;
  RunSummary summary_;
  EvalResult last_eval_;
  double peak_flops_ = 0;
  std::int64_t updates_ = 0, last_eval_at_ = -1;
  int rank_ = 0, skipped_in_a_row_ = 0;
};

}  // namespace trident
