// A step's FLOPs: by unit, for the division of layers, and over time, as if nothing else took any. How many parameters have them.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/schedule/step_simulator.h"
#include "train/plan/run_plan.h"

namespace trident {

struct ParameterCounts {
  std::int64_t trained = 0, all = 0;
};
// Adapters are among them, and a tied matrix counts once.
ParameterCounts count_parameters(const RunPlan& plan);

// FLOPs of forward and backward of each unit, for a micro-batch; less of parts that do not train.
std::vector<double> step_costs(const RunPlan& plan);

// The step simulated with the model FLOPs of units as seconds; messages, gathers, reductions and updates take none.
StepTimeline flops_timeline(const RunPlan& plan);

}  // namespace trident
