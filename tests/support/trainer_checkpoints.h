// Checkpoints of a rank of run_layout(), from its hooks, as a run makes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/logging.h"
#include "train/run/run_checkpoints.h"

namespace trident::testing {

struct TrainerCheckpointOptions {
  std::string from = {};  // goes on from this checkpoint; empty: from none
  std::string to = {};    // saves into this folder; empty: nothing
  std::optional<double> staging_megabytes = 0.01;  // as little as works; not set: checkpoint.staging "auto"
  std::ostream* warnings = nullptr;                // not set: standard error
};

// Collective throughout, between steps.
class TrainerCheckpoints {
 public:
  TrainerCheckpoints(RankTrainer& trainer, const TrainerCheckpointOptions& options);

  // Saves the step where the trainer stands.
  void start_saving();
  RunCheckpoints& checkpoints() { return checkpoints_; }
  // Goes on with the save until it is over; whether it is committed.
  bool finish();
  const std::vector<std::string>& said() const { return said_; }  // on rank 0

 private:
  static RunInputs inputs_for(const RankTrainer& trainer, const TrainerCheckpointOptions& options);

  RankTrainer& trainer_;
  RunInputs inputs_;
  LogSink sink_;
  Logger logger_;
  LogErrors log_errors_;
  std::vector<std::string> said_;
  Say say_;
  RunCheckpoints checkpoints_;
};

// Goes on from the checkpoint `from` unless that is empty, and saves into the folder `to` likewise.
void go_on_and_save(RankTrainer& trainer, const std::string& from, const std::string& to);

}  // namespace trident::testing
