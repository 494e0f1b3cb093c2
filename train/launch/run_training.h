// A training run from configuration to last line: launch, plan, ranks, loop, logs.
#pragma once

#include <functional>

#include "parallel/cuda/cuda_backend.h"
#include "train/config/train_config.h"
#include "train/launch/train_hooks.h"
#include "train/log/console.h"

namespace trident {

// Runs the configuration's ranks: this process is one of them when mpirun or srun started it as one of several, otherwise they are
// threads of it. `read_config` is called once, on every process. Everything that can be refused is refused before the run directory
// is made: ConfigError, DataError, StorageError. A rank that fails ends the others; the first cause is what is thrown, on rank 0 of
// several processes, or said by the lifeline, and ReportedElsewhere on the rest. SIGTERM, SIGUSR1 and SIGINT end the run at a step
// boundary: an Error with code 128 + signal.
void run_training(const std::function<TrainConfig()>& read_config, const TrainOutput& output, CudaBackend& cuda,
                  const TrainHooks& hooks);

}  // namespace trident
