// The bytes that a block's passes over rows move: norms, biases, activations, residual sums, heads and rotation, and not products,
// attention or copies. They are counted in the record of a dry step.
#pragma once

#include "train/config/train_config.h"
#include "train/plan/run_plan.h"

namespace trident {

// Counts what one block of the model of `config` moves, forward and backward, on one CPU rank: in units of H elements of the
// compute dtype per token.
double row_units_per_block(const TrainConfig& config, const MachineFacts& machine);

}  // namespace trident
