// A training run from configuration to last line: plan, ranks, loop, logs.
#pragma once

#include <ostream>

#include "core/logging.h"
#include "train/console.h"
#include "train/train_config.h"

namespace trident {

struct TrainOutput {
  std::ostream& console;  // step lines and the closing report
  ConsoleMode mode = ConsoleMode::kPlain;
  LogSink& log;           // warnings and errors of ranks
};

// Runs the configuration's ranks as threads of this process. Everything that can be refused is refused before the run directory is
// made: ConfigError, DataError. A rank that fails ends the others with CommunicationError; the first cause is what is thrown.
void run_training(const TrainConfig& config, const TrainOutput& output);

// Throws ConfigError when a launcher (mpirun, srun) started this process as one of several: ranks are threads here.
void refuse_launcher();

}  // namespace trident
