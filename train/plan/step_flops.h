// A step's FLOPs: by unit, for the division of layers, and over time, as if nothing else took any. How many parameters have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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

// "embedding, blocks 0-3" as far as the stage has them; a stage of several chunks: "blocks 0-1, 8-9".
std::string units_text(const RunPlan& plan, std::size_t stage);

// Says for what a pipeline's ranks wait where unequal stages make the step, flops_timeline(), a quarter longer than equal ones
// would, or where waiting takes more than half of it; else "".
std::string bubble_note(const RunPlan& plan, const StepTimeline& step);

// The step simulated with the model FLOPs of units as seconds; messages, gathers, reductions and updates take none.
StepTimeline flops_timeline(const RunPlan& plan);

}  // namespace trident
