// What small models tell of a machine while they train: every operation beside products and attention, where its operands lie as
// they do in training, and what is not within operations.
#pragma once

#include <functional>
#include <string>

#include "parallel/cuda/cuda_backend.h"
#include "train/bench/calibrate.h"
#include "train/plan/run_plan.h"

namespace trident {

// Fills `rates.operations`, by ranks of one thread on every core, or one of `threads` of all.
void measure_operations(const CalibrateOptions& options, int ranks, int threads, const std::string& source, CpuRates& rates);

// Least CPU seconds of a rank in a step of `steps`, without its batch; mean over ranks.
double step_cpu_seconds(const RunPlan& plan, int steps);

// Fills `rates.memory`. To be called first: it reads the most that was resident so far.
void measure_memory(const CalibrateOptions& options, const std::string& source, CudaBackend& cuda, CpuRates& rates);

// Fills `rates.constants` from whole steps, beside what the tables of `rates` say of them.
void measure_constants(const CalibrateOptions& options, const std::string& source, CpuRates& rates);

}  // namespace trident
