// Device memory of a rank under a stack, by part, from what the stack keeps: counted tensor by tensor.
//
// Bytes of one block's saved tensors for a GPT block with dropout and unfused attention are those of Korthikanti et al. 2022,
// table 2 (34 + 5 a s / h per token and hidden element at tp 1).
#pragma once

#include "planner/published/layout_pricing.h"

namespace trident {

struct MemoryPrice {
  double parameters = 0, gradients = 0, optimizer = 0, gathered = 0;
  double activations = 0;  // of all micro-batches in flight
  double logits = 0;
  double workspace = 0;  // of the block that runs: gradients of its tensors, or what it recomputes
  double peak_allocated = 0;
  // The fullest rank takes this, with what its allocator cannot use again and what lies outside it: with the usual reserve of the
  // allocator, or as much of that as the GPU has room for; and with the least reserve, which the GPU must have room for.
  double device = 0, least_device = 0;
  bool fits = false;  // every rank: least_device, and so device, is no more than the GPU has
  int pipeline_rank = 0;  // of the rank that the parts belong to: the one that allocates most
};

MemoryPrice price_memory(const PricingInput& in, const StageSplit& split);

// Saved for the backward of one block and micro-batch, without recomputation.
double block_activation_bytes(const PricingInput& in);

}  // namespace trident
