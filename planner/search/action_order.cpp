#include "planner/search/action_order.h"

#include <cstddef>
#include <cstdint>

#include "core/check.h"

namespace trident {
namespace {

OrderedAction ordered(const Schedule& schedule, const ActionOrder& order, std::size_t rank, std::size_t index) {
  const std::vector<Action>& actions = schedule.ranks[rank];
  const Action& action = actions[index];
  TRIDENT_CHECK(action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward, "{}: a split backward",
                to_string(action));
  OrderedAction of;
  of.forward = action.kind == ActionKind::kForward;
  of.micro_batch = action.micro_batch;
  of.rank = static_cast<std::int16_t>(rank);
  of.chunk = static_cast<std::int16_t>(schedule.chunk_of(action.virtual_stage));
  of.time = static_cast<std::int32_t>(order.time(of.rank, of.chunk, of.forward ? 0 : of.micro_batch == 0 ? 1 : 2));
  const auto pass = [&](int stage) {
    return static_cast<std::int32_t>(of.forward ? order.forward(stage, of.micro_batch) : order.backward(stage, of.micro_batch));
  };
  of.pass = pass(action.virtual_stage);
  const int to = action.virtual_stage + (of.forward ? 1 : -1);
  if (to >= 0 && to < order.stages) of.next = pass(to);
  if (index + 1 == actions.size()) return of;
  const Action& successor = actions[index + 1];
  of.has_successor = true;
  of.successor_forward = successor.kind == ActionKind::kForward;
  of.successor_chunk = static_cast<std::int16_t>(schedule.chunk_of(successor.virtual_stage));
  return of;
}

}  // namespace

ActionOrder order_of(const Schedule& schedule) {
  ActionOrder order{schedule.num_ranks, schedule.num_virtual_stages(), schedule.num_micro_batches, false, {}};
  const std::vector<Action>& last = schedule.ranks.back();
  order.all_forwards_first =
      last.size() > 1 && last[1].kind == ActionKind::kForward && schedule.num_chunks == 1 && schedule.num_ranks > 1;
  std::vector<bool> arrived(order.passes(), false);
  for (int micro_batch = 0; micro_batch < order.micro_batches; ++micro_batch) {
    arrived[order.forward(0, micro_batch)] = true;
    arrived[order.backward(order.stages - 1, micro_batch)] = true;  // behind its own forward
  }
  std::vector<std::size_t> next(schedule.ranks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      for (; next[rank] < schedule.ranks[rank].size(); ++next[rank]) {
        const OrderedAction action = ordered(schedule, order, rank, next[rank]);
        if (!arrived[static_cast<std::size_t>(action.pass)]) break;
        if (action.next != OrderedAction::kNone) arrived[static_cast<std::size_t>(action.next)] = true;
        order.actions.push_back(action);
        moved = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < next.size(); ++rank)
    TRIDENT_CHECK(next[rank] == schedule.ranks[rank].size(), "a schedule whose ranks wait for each other");
  return order;
}

}  // namespace trident
