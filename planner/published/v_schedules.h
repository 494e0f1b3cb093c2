// Orders of forwards and input gradients for V-shaped schedules: rank r has stages r and 2p-1-r. Qi et al. 2024, "Pipeline
// Parallelism with Controllable Memory" (arXiv 2405.15362).
#pragma once

#include "planner/published/placed_schedule.h"

namespace trident {

struct VOrder {
  PlacedSchedule placed;  // without weight gradients
  double limit = 0;       // memory of a rank, in peak_activations' units
};

// zb-v: memory of 1f1b, no bubble when all passes take equally long. Rank r begins with 2(p-r)-1 forwards of its first stage, goes
// on in turn with its second, and is in its steady order, one forward and one input gradient of each stage, once the first gradient
// is there.
VOrder make_zb_v_order(int num_ranks, int num_micro_batches);

// How far apart the passes of a micro-batch are on neighbouring ranks, in units of a pass, when all passes take one unit: forwards
// down the V and up, input gradients down and up. The sum of the lifetimes of a rank's activations, and so its memory, grows with
// forward_up + gradient_down = forward_down + gradient_up.
struct BlockSteps {
  int forward_down = 1, forward_up = 1, gradient_down = 1, gradient_up = 1;
};
inline constexpr BlockSteps kVMin{1, 1, 1, 1};   // about 1/3 of 1f1b's memory
inline constexpr BlockSteps kVHalf{2, 1, 2, 1};  // about 1/2

// Repeats one micro-batch's block of passes every six units (a rank has six passes of each micro-batch), with the smallest delays
// at the turns that keep passes of a rank apart.
VOrder make_block_order(int num_ranks, int num_micro_batches, const BlockSteps& steps);

}  // namespace trident
