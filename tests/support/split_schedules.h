// Schedules that split backwards, which no configuration asks for yet.
#pragma once

#include "pipeline/schedule.h"

namespace trident::testing {

// GPipe with all weight gradients at the end: everything that lies between an input gradient and its weight gradient is kept for
// every micro-batch.
inline Schedule gpipe_with_weights_last(int num_ranks, int num_micro_batches) {
  Schedule schedule{.num_ranks = num_ranks, .num_chunks = 1, .num_micro_batches = num_micro_batches, .ranks = {}};
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<Action>& actions = schedule.ranks.emplace_back();
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackwardInput, ActionKind::kBackwardWeight}) {
      for (int mb = 0; mb < num_micro_batches; ++mb) actions.push_back({kind, rank, mb});
    }
  }
  return schedule;
}

}  // namespace trident::testing
