#include "planner/search/schedule_facts.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "core/check.h"
#include "pipeline/schedule/message_order.h"

namespace trident {
namespace {

// How many are in use at once.
class Count {
 public:
  void take() { most_ = std::max(most_, ++now_); }
  void give() { --now_; }
  int most() const { return most_; }

 private:
  int now_ = 0, most_ = 0;
};

std::vector<int> slots_of(const Schedule& schedule, const std::vector<Action>& actions) {
  std::vector<Count> counts(static_cast<std::size_t>(schedule.num_chunks));
  for (const Action& action : actions) {
    Count& count = counts[static_cast<std::size_t>(schedule.chunk_of(action.virtual_stage))];
    action.kind == ActionKind::kForward ? count.take() : count.give();
  }
  std::vector<int> slots;
  for (const Count& count : counts) slots.push_back(count.most());
  return slots;
}

struct Receives {
  int activations = 0, gradients = 0;
};

// A buffer is taken when a message is received and given back by the action that reads it.
Receives receives_of(const std::vector<WovenItem>& items) {
  Count activations, gradients;
  std::set<Message> held;
  for (const WovenItem& item : items) {
    if (item.kind == WovenItem::Kind::kReceive) {
      (item.message.kind == MessageKind::kActivation ? activations : gradients).take();
      held.insert(item.message);
    } else if (item.kind == WovenItem::Kind::kAction) {
      const MessageKind kind = item.action.kind == ActionKind::kForward ? MessageKind::kActivation : MessageKind::kGradient;
      if (held.erase({kind, item.action.virtual_stage, item.action.micro_batch}) > 0)
        (kind == MessageKind::kActivation ? activations : gradients).give();
    }
  }
  return {activations.most(), gradients.most()};
}

std::vector<Succession> successions_of(const Schedule& schedule, const std::vector<Action>& actions) {
  std::set<Succession> all;
  for (std::size_t i = 0; i + 1 < actions.size(); ++i) {
    const Action &a = actions[i], &b = actions[i + 1];
    all.insert({a.kind, b.kind, schedule.chunk_of(a.virtual_stage), schedule.chunk_of(b.virtual_stage)});
  }
  return {all.begin(), all.end()};
}

ScheduleFacts make_facts(const ScheduleKey& key, bool early) {
  ScheduleFacts facts;
  const int m = ScheduleBook::laid_out(key.pipeline, key.micro_batches);
  const Schedule schedule = make_schedule(key.kind, key.pipeline, key.chunks, m);
  const ReceivePosting posting = early ? ReceivePosting::kEarly : ReceivePosting::kLate;
  const auto woven = weave_messages(schedule, posting);
  const auto evaluation = weave_messages(make_forward_only(key.pipeline, key.chunks, m), posting);
  for (std::size_t rank = 0; rank < woven.size(); ++rank) {
    RankFacts& of = facts.ranks.emplace_back();
    of.slots = slots_of(schedule, schedule.ranks[rank]);
    if (key.kind == ScheduleKind::kGpipe) of.slots.assign(1, key.micro_batches);
    const Receives training = receives_of(woven[rank]), forwards = receives_of(evaluation[rank]);
    of.activation_receives = std::max(training.activations, forwards.activations);
    of.gradient_receives = training.gradients;
    of.successions = successions_of(schedule, schedule.ranks[rank]);
  }
  return facts;
}

}  // namespace

int ScheduleBook::laid_out(int pipeline, int micro_batches) {
  const int most = (pipeline < kFewRanks ? kRoundsOfFew : kRounds) * pipeline;
  return micro_batches <= most ? micro_batches : most;
}

const ActionOrder& ScheduleBook::order(const ScheduleKey& key) {
  const std::scoped_lock lock(mutex_);
  const auto [found, is_new] = orders_.try_emplace(key);
  if (is_new) found->second = order_of(make_schedule(key.kind, key.pipeline, key.chunks, key.micro_batches));
  return found->second;
}

const ScheduleFacts& ScheduleBook::facts(const ScheduleKey& key) {
  ScheduleKey asked = key;
  // Only gpipe's memory grows with every micro-batch.
  if (key.kind != ScheduleKind::kGpipe) asked.micro_batches = laid_out(key.pipeline, key.micro_batches);
  const std::scoped_lock lock(mutex_);
  const auto found = facts_.find(asked);
  if (found != facts_.end()) return found->second;
  return facts_.emplace(asked, make_facts(asked, early_)).first->second;
}

}  // namespace trident
