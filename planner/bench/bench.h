// Measures a machine's rates in the operations of training, and where the time of one step goes, beside the least it could take.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "parallel/cuda/cuda_backend.h"
#include "parallel/mpi/process_world.h"
#include "planner/bench/bench_report.h"
#include "train/config/train_config.h"

namespace trident {

// The model, batch and precision of `config` on one rank, on random tokens; its layout does not count. Throws ConfigError if that
// does not fit into the memory, or for a device that is not there.
BenchReport run_bench(const TrainConfig& config, const BenchOptions& options, CudaBackend& cuda);

// One process of a job's part: first what they reach together, then, in rank 0 alone, run_bench(). Only rank 0 has a report. Ends the world. What all
// of them throw alike is told to rank 0's `say` before.
std::optional<BenchReport> run_bench_as_process(const TrainConfig& config, const BenchOptions& options, ProcessWorld& world, CudaBackend& cuda,
                                                const std::function<void(const std::string& message)>& say);

// Whichever of these the launcher of this process means.
std::optional<BenchReport> run_bench_here(const TrainConfig& config, const BenchOptions& options, CudaBackend& cuda);

}  // namespace trident
