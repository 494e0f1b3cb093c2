// The simulated step as the trace that a measured one would be (train/log/trace_writer.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/predict/forecast.h"
#include "train/log/trace_writer.h"
#include "train/plan/run_plan.h"

namespace trident {

// Slices of step 1 on the rank of a pipeline stage with tp 0, dp 0. Computes and updates lie in the compute lane, gathers
// and reductions in lanes of their own, messages from sending to arrival at both ends.
std::vector<TraceSlice> trace_slices(const Forecast& forecast, std::size_t stage);

// Writes them for every stage: one rank of each, as a grid of pipeline ranks alone. The others do as much at the same times. Throws
// StorageError.
void write_plan_trace(const std::string& path, const RunPlan& plan, const Forecast& forecast);

}  // namespace trident
