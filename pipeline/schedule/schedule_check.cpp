#include "pipeline/schedule/schedule_check.h"

#include <string_view>
#include <vector>

#include "core/at.h"
#include "core/check.h"
#include "core/counted.h"
#include "pipeline/schedule/channel_check.h"
#include "pipeline/schedule/message_order.h"
#include "pipeline/schedule/schedule_simulator.h"

namespace trident {
namespace {

using Fault = std::optional<std::string>;

std::string name(std::size_t rank, std::size_t position, const Action& action) {
  return fmt::format("rank {}, action {} ({})", rank, position, to_string(action));
}

// The passes of one (virtual stage, micro-batch) that are done.
struct Progress {
  bool forward = false, input_gradient = false, weight_gradient = false;
};

class OrderCheck {
 public:
  explicit OrderCheck(const Schedule& schedule)
      : schedule_(schedule), progress_(static_cast<std::size_t>(schedule.num_virtual_stages() * schedule.num_micro_batches)),
        last_input_gradient_(static_cast<std::size_t>(schedule.num_virtual_stages()), -1),
        last_weight_gradient_(last_input_gradient_) {}

  Fault run() {
    if (static_cast<int>(schedule_.ranks.size()) != schedule_.num_ranks)
      return fmt::format("{} {} actions, p={}", counted(std::ssize(schedule_.ranks), "rank"),
                         schedule_.ranks.size() == 1 ? "has" : "have", schedule_.num_ranks);
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
      for (std::size_t i = 0; i < schedule_.ranks[rank].size(); ++i) {
        const Action& action = schedule_.ranks[rank][i];
        Fault fault = misplaced(static_cast<int>(rank), action);
        if (!fault) fault = out_of_order(action);
        if (fault) return name(rank, i, action) + ": " + *fault;
      }
    return missing();
  }

 private:
  Progress& progress(int stage, int mb) { return at(progress_, stage * schedule_.num_micro_batches + mb); }

  Fault misplaced(int rank, const Action& a) const {
    if (a.virtual_stage < 0 || a.virtual_stage >= schedule_.num_virtual_stages())
      return fmt::format("there are {} virtual stages", schedule_.num_virtual_stages());
    if (a.micro_batch < 0 || a.micro_batch >= schedule_.num_micro_batches)
      return fmt::format("there are {} micro-batches", schedule_.num_micro_batches);
    if (schedule_.rank_of(a.virtual_stage) != rank)
      return fmt::format("virtual stage {} lives on rank {}", a.virtual_stage, schedule_.rank_of(a.virtual_stage));
    return std::nullopt;
  }

  // Rules within a (virtual stage, micro-batch) concern one rank only, so a walk over each rank in order decides them.
  Fault out_of_order(const Action& a) {
    Progress& done = progress(a.virtual_stage, a.micro_batch);
    if (a.kind == ActionKind::kForward) {
      if (done.forward) return "duplicate forward";
      done.forward = true;
      return std::nullopt;
    }
    if (!done.forward) return "its forward has not run";
    if (computes_input_gradient(a.kind)) {
      if (done.input_gradient) return "duplicate input gradient";
      done.input_gradient = true;
      if (!computes_weight_gradient(a.kind))
        if (Fault fault = descending(a, last_input_gradient_, "input")) return fault;
    }
    if (computes_weight_gradient(a.kind)) {
      if (!done.input_gradient) return "its input gradient has not run";
      if (done.weight_gradient) return "duplicate weight gradient";
      done.weight_gradient = true;
      return descending(a, last_weight_gradient_, "weight");
    }
    return std::nullopt;
  }

  // Both halves add to gradients (norms' in the first), and the order of a sum is part of its bits.
  static Fault descending(const Action& a, std::vector<int>& last_of_stage, std::string_view which) {
    int& last = at(last_of_stage, a.virtual_stage);
    if (a.micro_batch < last)
      return fmt::format("{} gradients run in ascending micro-batch order, and micro-batch {} came before", which, last);
    last = a.micro_batch;
    return std::nullopt;
  }

  Fault missing() {
    const bool forward_only = schedule_.forward_only();
    for (int stage = 0; stage < schedule_.num_virtual_stages(); ++stage)
      for (int mb = 0; mb < schedule_.num_micro_batches; ++mb) {
        const Progress& done = progress(stage, mb);
        const char* what = !done.forward                               ? "forward"
                           : !forward_only && !done.input_gradient  ? "backward"
                           : !forward_only && !done.weight_gradient ? "weight gradient"
                                                                    : nullptr;
        if (!what) continue;
        return fmt::format("rank {}: virtual stage {} has no {} of micro-batch {}", schedule_.rank_of(stage), stage, what, mb);
      }
    return std::nullopt;
  }

  const Schedule& schedule_;
  std::vector<Progress> progress_;
  std::vector<int> last_input_gradient_, last_weight_gradient_;
};

// A circular wait in the dependencies.
Fault blocked_dependencies(const Schedule& schedule) {
  const ScheduleTasks tasks = to_tasks(schedule, uniform_costs(1, 1, 1));
  const TaskTimeline timeline = run_tasks(tasks.ranks, tasks.num_tokens);
  std::string stuck;
  for (std::size_t rank = 0; rank < timeline.blocked_at.size(); ++rank) {
    if (timeline.blocked_at[rank] == Task::kNone) continue;
    const auto at = static_cast<std::size_t>(timeline.blocked_at[rank]);
    const Action& a = schedule.ranks[rank][at];
    const Action awaited{a.kind, a.virtual_stage + (a.kind == ActionKind::kForward ? -1 : 1), a.micro_batch};
    stuck += fmt::format("{}{} waits for {}", stuck.empty() ? "deadlock: " : "; ", name(rank, at, a), to_string(awaited));
  }
  if (stuck.empty()) return std::nullopt;
  return stuck;
}

// A circular wait in the messages.
Fault blocked_channels(const Schedule& schedule, int capacity) {
  const auto woven = weave_messages(schedule, ReceivePosting::kEarly);
  std::vector<std::vector<ChannelOp>> ops(woven.size());
  for (std::size_t rank = 0; rank < woven.size(); ++rank)
    for (std::size_t i = 0; i < woven[rank].size(); ++i) {
      const auto& [kind, action, message] = woven[rank][i];
      if (kind == WovenItem::Kind::kAction) continue;
      const int channel = source_rank(schedule, message) * schedule.num_ranks + destination_rank(schedule, message);
      const int tag = (static_cast<int>(message.kind) * schedule.num_virtual_stages() + message.virtual_stage) *
                      schedule.num_micro_batches + message.micro_batch;
      ops[rank].push_back({kind == WovenItem::Kind::kSend ? ChannelOp::Kind::kSend : ChannelOp::Kind::kReceive,
                           2 * channel + static_cast<int>(message.kind), tag, static_cast<int>(i)});
    }
  const auto fault = find_channel_fault(ops, 2 * schedule.num_ranks * schedule.num_ranks, {}, capacity);
  if (!fault) return std::nullopt;
  return fmt::format("messages block with channel capacity {}, first on rank {}", capacity, fault->places.front().first);
}

}  // namespace

std::optional<std::string> find_schedule_fault(const Schedule& schedule) {
  Fault fault = OrderCheck(schedule).run();
  if (!fault) fault = blocked_dependencies(schedule);
  if (!fault) fault = blocked_channels(schedule, 0);
  if (!fault) fault = blocked_channels(schedule, 1);
  return fault;
}

void check_schedule(const Schedule& schedule) {
  const auto fault = find_schedule_fault(schedule);
  if (fault) throw InternalError(fmt::format("broken pipeline schedule: {}\n{}", *fault, to_text(schedule)));
}

}  // namespace trident
