// Whether what the ranks are about to allocate is there: on CPUs of their machines together, on cards of each card.
#pragma once

#include <span>

#include "train/run_plan.h"

namespace trident {

// Of one rank, in bytes.
struct ArenaNeed {
  double total = 0, activations = 0;
};

// `needs`: by rank. ConfigError for what does not fit: which rank of which stage on which card, what it needs, what is there, and the micro-batch
// that would fit.
void check_arenas(const RunPlan& plan, std::span<const ArenaNeed> needs);

}  // namespace trident
