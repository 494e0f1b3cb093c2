// Small models measure a machine while they train: every operation beside matmuls and attention, where its operands lie as
// they do in training, and what is not within operations.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/bench/calibrate.h"
#include "train/plan/run_plan.h"

namespace trident {

// A model's steps, of a rank on average; without its batch.
struct TrainedSteps {
  RunPlan plan;
  double cpu = 0;         // seconds
  double wall = 0;        // of the slowest rank
  double operations = 0;  // what all operations took, measured one by one
};

// Fills `rates.operations`, by ranks of one thread on every core, or one of `threads` of all; and brings `rates.products` and
// `rates.attention` of as many threads, which are there, to what training takes (calls_in_training.h).
std::vector<TrainedSteps> measure_operations(const CalibrateOptions& options, int ranks, int threads, const std::string& source,
                                             CpuRates& rates);

// Fills `rates.memory` from runs of options.program. To be called while this process is small: what a process was before it became
// a program counts as that program's.
void measure_memory(const CalibrateOptions& options, const std::string& source, CpuRates& rates);

// Fills `rates.constants` from steps of ranks of one thread: what they took beside their operations, and beside what the tables of
// `rates` say of their collectives.
void fit_constants(std::span<const TrainedSteps> steps, const std::string& source, CpuRates& rates);

// A remark for a machine on which other programs had the cores while `steps` were measured, by those of ranks that wait for
// nobody, or whenever the peak was, so that `rates` have none; empty where none had.
std::string disturbance(std::span<const TrainedSteps> steps, const CpuRates& rates);

}  // namespace trident
