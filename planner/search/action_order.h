// A schedule as one list, for steps that are looked at action by action (closed_form.h). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace trident {

struct OrderedAction {
  static constexpr std::int32_t kNone = -1;

  std::int32_t pass = 0;         // of a virtual stage and a micro-batch, forward or backward: ActionOrder::forward(), backward()
  std::int32_t next = kNone;     // the pass that it sends to: the same micro-batch's on the stage behind or before
  std::int32_t micro_batch = 0;
  std::int32_t time = 0;         // which of the times it takes: ActionOrder::time()
  std::int16_t rank = 0, chunk = 0;
  bool forward = true;
  bool has_successor = false, successor_forward = false;  // on its rank
  std::int16_t successor_chunk = 0;
};

struct ActionOrder {
  int ranks = 1, stages = 1, micro_batches = 1;
  bool all_forwards_first = false;            // gpipe, of more than one rank
  std::vector<OrderedAction> actions;         // each behind those of its rank that come before, and behind the one that sends to it

  std::size_t forward(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batches) + static_cast<std::size_t>(micro_batch);
  }
  std::size_t backward(int stage, int micro_batch) const { return forward(stages + stage, micro_batch); }
  std::size_t passes() const { return forward(2 * stages, 0); }
  // Passes of a rank's chunk take one of three times: forward, the first micro-batch's backward, another's.
  std::size_t time(int rank, int chunk, int which) const {
    return static_cast<std::size_t>((rank * (stages / ranks) + chunk) * 3 + which);
  }
};

// Throws InternalError: ranks that wait for each other, split backwards.
ActionOrder order_of(const Schedule& schedule);

}  // namespace trident
