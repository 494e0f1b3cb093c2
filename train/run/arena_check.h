// Whether what the ranks are about to allocate is there: of each machine, or of each GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/communicator/communicator.h"
#include "train/plan/run_plan.h"
#include "train/run/dry_run.h"

namespace trident {

// One rank's need, in bytes.
struct ArenaNeed {
  double total = 0;
  double activations = 0;    // all that grows with the micro-batch: with their gradients, scratch and what crosses stages
  double logits = 0;         // of the activations: what recompute.head_chunk would keep to a chunk
  std::string largest = {};  // its largest tensors, as largest_entries() says
  std::optional<double> free = {};  // on its GPU, while all ranks' communicators exist and no arena does
};

// By rank, with micro-batches of `micro` sequences.
using NeedsOfMicro = std::function<std::vector<ArenaNeed>(std::int64_t micro)>;

// `needs`: by rank. What a GPU has for arenas is counted from what is free there, where that was asked, and else as the plan expected it.
// ConfigError for what does not fit: which rank of which stage where, what it needs and for which tensors, what is there, and the
// micro-batch or the key that would make it fit. A micro-batch is named when `needs_of` has said that it does; without `needs_of`,
// as if activations grew with the micro-batch alone, which pipelines belie: of smaller ones more may be in flight.
void check_arenas(const RunPlan& plan, std::span<const ArenaNeed> needs, const NeedsOfMicro& needs_of = {});

// By rank, of dry_stages().
std::vector<ArenaNeed> arena_needs(const RunPlan& plan, std::span<const DryRun> stages);

// Collective: what is free now, as each rank sees it (`mine.free`; all ranks of a pool say it or none), beside what the ranks of
// its pool need. plan.memory has at least this rank's own. The first rank whose pool has too little asks `needs_of_all`, by rank,
// and says on all ranks what check_arenas() would.
void check_free(const RunPlan& plan, Communicator& world, Stream& stream, const ArenaNeed& mine,
                const std::function<std::vector<ArenaNeed>()>& needs_of_all);

}  // namespace trident
