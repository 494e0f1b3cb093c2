// Measures a machine's rates in the operations of training, and where the time of one step goes, beside the least it could take.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "parallel/cuda/cuda_backend.h"
#include "parallel/mpi/process_world.h"
#include "planner/bench/bench_report.h"
#include "train/config/train_config.h"
#include "train/plan/run_plan.h"

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

// Counts the bytes that the passes over rows of one block of the model of `config` move, forward and backward, on one CPU rank, in
// the record of a dry step: norms, biases, activations, residual sums, heads and rotation, and not products, attention or copies.
// In units of H elements of the compute dtype per token.
double row_units_per_block(const TrainConfig& config, const MachineFacts& machine);

}  // namespace trident
