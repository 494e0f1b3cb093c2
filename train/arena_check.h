// Whether what the ranks are about to allocate is there: of each machine, or of each card.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "parallel/communicator.h"
#include "train/run_plan.h"

namespace trident {

// Of one rank, in bytes.
struct ArenaNeed {
  double total = 0, activations = 0;
  double logits = 0;         // of the activations: what recompute.head_chunk would keep to a chunk
  std::string largest = {};  // its largest tensors, as largest_entries() says
  std::optional<double> free = {};  // on its card, while all ranks' communicators exist and no arena does
};

// Of the ranks that share a machine or a card.
struct PoolNeed {
  double total = 0;
  std::optional<double> free = {};  // the least that any of them sees
};
bool fits(const MemoryPool& pool, const PoolNeed& need);

// `needs`: by rank. What a card has for arenas is counted from what is free there, where that was asked, and else as the plan expected it.
// ConfigError for what does not fit: which rank of which stage where, what it needs and for which tensors, what is there, and the
// micro-batch or the key that would make it fit.
void check_arenas(const RunPlan& plan, std::span<const ArenaNeed> needs);

// Collective: the same for ranks that each know what they need themselves, `mine`, and of plan.memory at least their own pool. The
// ranks of a pool add up; only where that is too much does every rank's need come to rank 0, and its line to all, which throw it.
void check_arenas(const RunPlan& plan, Communicator& world, Stream& stream, const ArenaNeed& mine);

}  // namespace trident
