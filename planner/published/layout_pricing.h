// The price of a published run's step: its time by part, from the passes of single micro-batches and the real schedule.
#pragma once

#include <string>
#include <vector>

#include "planner/published/block_cost.h"

namespace trident {

// The blocks of each virtual stage, and where the vocabulary's layers are.
struct StageSplit {
  std::vector<int> blocks;          // [virtual stage]
  bool vocabulary_divided = false;  // embedding and head spread evenly over the stages
  std::string assumed;              // how the layers were divided, where the row leaves a choice
};

// Even where that is possible; one block less at each end where only so the layers divide; otherwise by cost.
StageSplit split_stages(const PricingInput& in);

struct RowPrice {
  double step_s = 0;
  // Seconds of the busiest stage, and what the step waits for: they add up to step_s.
  double compute_s = 0, recompute_s = 0, tp_s = 0, launch_s = 0, bubble_s = 0, dp_s = 0, optimizer_s = 0, fixed_s = 0;
};

// Sharded units are gathered and reduced in each micro-batch, and not once a step.
bool shards_in_each_micro_batch(const PricingInput& in);

// Why there is no price: a precision that the GPU lacks, layers or micro-batches that do not divide, too many passes; empty: there
// is one. The functions below and price_memory() are for what can be priced.
std::string why_not_priced(const PricingInput& in);

RowPrice price_row(const PricingInput& in, const StageSplit& split);

}  // namespace trident
