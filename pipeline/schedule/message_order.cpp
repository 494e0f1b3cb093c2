#include "pipeline/schedule/message_order.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/at.h"
#include "pipeline/schedule/schedule_simulator.h"

namespace trident {
namespace {

using ItemKind = WovenItem::Kind;

// The message that `action` sends on to another virtual stage, if any.
std::optional<Message> output_of(const Schedule& schedule, const Action& action) {
  const int stage = action.virtual_stage;
  if (action.kind == ActionKind::kForward && stage + 1 < schedule.num_virtual_stages())
    return Message{.is_gradient = false, .virtual_stage = stage + 1, .micro_batch = action.micro_batch};
  if (computes_input_gradient(action.kind) && stage > 0)
    return Message{.is_gradient = true, .virtual_stage = stage - 1, .micro_batch = action.micro_batch};
  return std::nullopt;
}

std::vector<std::vector<WovenItem>> weave_sends(const Schedule& schedule) {
  std::vector<std::vector<WovenItem>> woven(schedule.ranks.size());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    woven[rank].reserve(2 * schedule.ranks[rank].size());
    for (const Action& action : schedule.ranks[rank]) {
      woven[rank].push_back({ItemKind::kAction, action, {}});
      const auto output = output_of(schedule, action);
      if (output && source_rank(schedule, *output) != destination_rank(schedule, *output))
        woven[rank].push_back({ItemKind::kSend, {}, *output});
    }
  }
  return woven;
}

}  // namespace

int source_rank(const Schedule& schedule, const Message& message) {
  return schedule.rank_of(message.is_gradient ? message.virtual_stage + 1 : message.virtual_stage - 1);
}

int destination_rank(const Schedule& schedule, const Message& message) { return schedule.rank_of(message.virtual_stage); }

std::vector<std::vector<WovenItem>> weave_messages(const Schedule& schedule, ReceivePosting posting) {
  if (posting == ReceivePosting::kNever) return weave_sends(schedule);
  const ScheduleTimeline timeline = simulate(schedule, uniform_costs(1, 1, 1));

  std::vector<std::vector<std::tuple<double, Message, ItemKind>>> messages(schedule.ranks.size());  // by time, then identity
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const auto message = output_of(schedule, schedule.ranks[rank][i]);
      if (!message || source_rank(schedule, *message) == destination_rank(schedule, *message)) continue;
      const double time = timeline.ranks[rank][i].end;
      messages[rank].emplace_back(time, *message, ItemKind::kSend);
      at(messages, destination_rank(schedule, *message)).emplace_back(time, *message, ItemKind::kReceive);
    }

  std::vector<std::vector<WovenItem>> woven(schedule.ranks.size());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::sort(messages[rank].begin(), messages[rank].end());
    auto next = messages[rank].begin();
    const auto emit_messages_while = [&](auto due) {
      for (; next != messages[rank].end() && due(std::get<double>(*next)); ++next)
        woven[rank].push_back({std::get<ItemKind>(*next), {}, std::get<Message>(*next)});
    };
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const TaskTimes t = timeline.ranks[rank][i];
      if (posting == ReceivePosting::kEarly) emit_messages_while([&](double time) { return time < t.end; });
      else emit_messages_while([&](double time) { return time <= t.start; });
      woven[rank].push_back({ItemKind::kAction, schedule.ranks[rank][i], {}});
    }
    emit_messages_while([](double) { return true; });
  }
  return woven;
}

}  // namespace trident
