// This process as one rank of a job that mpirun or srun started.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "parallel/communicator/launcher.h"
#include "parallel/cuda/cuda_backend.h"
#include "train/launch/run_training.h"

namespace trident {

// run_training() on one rank of several processes.
void run_as_process(const Launcher& launcher, const std::function<TrainConfig()>& read_config, const TrainOutput& output,
                    CudaBackend& cuda, const TrainHooks& hooks);

// What is said of an error after training's end, which does not fail the run.
std::string not_reported(std::string_view error);

}  // namespace trident
