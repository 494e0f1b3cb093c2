// Memory over the time of a step: the activations that micro-batches in flight hold, where the simulated step has them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/schedule/step_program.h"
#include "planner/price/step_price.h"
#include "train/run/dry_run.h"

namespace trident {

// From `seconds` to the next entry's, `bytes` are held.
struct HeldBytes {
  double seconds = 0;
  std::int64_t bytes = 0;
};

// A rank holds a block of a virtual stage from its first forward of a micro-batch to the end of its last backward of it. By rising
// time, beginning with 0 bytes at 0 s; what changes at one moment is one entry. Where backwards are split: what input gradients
// read until the last of these, the rest until the last weight gradient. The most that is ever held is what the arena has blocks
// for, if chunks reach their mosts together.
std::vector<HeldBytes> held_activations(const StepProgram& program, std::span<const ActivationBlocks> blocks,
                                        std::span<const TaskTimes> spans);

std::int64_t most_held(std::span<const HeldBytes> held);

}  // namespace trident
