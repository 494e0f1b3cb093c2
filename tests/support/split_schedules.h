// Schedules that split backwards, which no configuration asks for yet.
#pragma once

#include "pipeline/schedule/schedule_generators.h"

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

// 1F1B with all weight gradients at the end: micro-batches in flight, but all of what weight gradients read.
inline Schedule one_f_one_b_with_weights_last(int num_ranks, int num_micro_batches) {
  Schedule schedule = make_1f1b(num_ranks, num_micro_batches);
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<Action>& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    for (Action& action : actions)
      if (action.kind == ActionKind::kBackward) action.kind = ActionKind::kBackwardInput;
    for (int mb = 0; mb < num_micro_batches; ++mb) actions.push_back({ActionKind::kBackwardWeight, rank, mb});
  }
  return schedule;
}

}  // namespace trident::testing
