// Are the programs of all ranks what the step needs, in an order that cannot go wrong?
#pragma once

#include <vector>

#include "pipeline/schedule/step_program.h"

namespace trident {

// Runs every program symbolically, then all of them against each other. Knows the rules, not how the builder follows them:
//  - each unit's forward and backward of each micro-batch runs once, after what it reads was computed here or received;
//  - outputs that another rank needs are sent once, receives wait in a buffer that nothing else occupies;
//  - a compute finds its unit in its slot; a gather finds its slot empty; what is gathered is freed;
//  - the first backward after a reduction overwrites, the others add; every unit is reduced ceil(m/k) times, each after exactly
//    the backwards it sums; transient gradients are reduced before their buffer is written again;
//  - reductions, then tie exchange, then norm, then one step per unit, then the gather of resident parameters;
//  - micro-batches in flight per virtual stage, and so the blocks of activation memory, are as the schedule simulator says;
//  - messages, tie exchange and norm of all ranks meet without deadlock, through channels of capacity 0 and 1.
//
// Throws InternalError: what is wrong, and the stretch of the program with an arrow under the instruction.
void check_step_programs(const std::vector<StepProgram>& programs, const StepProgramSpec& spec);

}  // namespace trident
