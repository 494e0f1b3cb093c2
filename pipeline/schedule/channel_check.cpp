#include "pipeline/schedule/channel_check.h"

#include <deque>

#include "core/at.h"
#include "core/check.h"

namespace trident {
namespace {

constexpr int kNobody = -1;

class ChannelMachine {
 public:
  ChannelMachine(const std::vector<std::vector<ChannelOp>>& ranks, int num_channels, const std::vector<int>& barrier_sizes,
                 int capacity)
      : ranks_(ranks), next_(ranks.size(), 0), channels_(static_cast<std::size_t>(num_channels)),
        barriers_(barrier_sizes.size()), barrier_sizes_(barrier_sizes), capacity_(capacity) {}

  std::optional<ChannelFault> run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) runnable_.push_back(static_cast<int>(rank));
    while (!runnable_.empty() && !wrong_message_) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      while (!wrong_message_ && current(rank) && advance(rank)) {
      }
    }
    if (wrong_message_) return wrong_message_;
    ChannelFault deadlock;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (const ChannelOp* op = current(static_cast<int>(r))) deadlock.places.emplace_back(static_cast<int>(r), op->position);
    if (deadlock.places.empty()) return std::nullopt;
    return deadlock;
  }

 private:
  struct Channel {
    std::deque<std::int64_t> in_flight;              // tags
    int sender_waits = kNobody, receiver_waits = kNobody;  // ranks
  };

  const ChannelOp* current(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return next_[r] < ranks_[r].size() ? &ranks_[r][next_[r]] : nullptr;
  }
  void step_over(int rank) { ++at(next_, rank); }
  void wake(int& rank) {
    if (rank != kNobody) runnable_.push_back(rank);
    rank = kNobody;
  }

  // Performs the rank's current operation, or parks the rank and returns false.
  bool advance(int rank) {
    const ChannelOp& op = *current(rank);
    if (op.kind == ChannelOp::Kind::kBarrier) return enter_barrier(rank, op);
    Channel& channel = at(channels_, op.channel);
    return op.kind == ChannelOp::Kind::kSend ? send(rank, op, channel) : receive(rank, op, channel);
  }

  // A rendezvous is a channel of capacity 1 that takes a message only while its receiver waits.
  bool send(int rank, const ChannelOp& op, Channel& channel) {
    const bool room = capacity_ == 0 ? channel.receiver_waits != kNobody && channel.in_flight.empty()
                                     : static_cast<int>(channel.in_flight.size()) < capacity_;
    if (!room) {
      channel.sender_waits = rank;
      return false;
    }
    channel.in_flight.push_back(op.tag);
    wake(channel.receiver_waits);
    step_over(rank);
    return true;
  }

  bool receive(int rank, const ChannelOp& op, Channel& channel) {
    if (channel.in_flight.empty()) {
      channel.receiver_waits = rank;
      if (capacity_ == 0) wake(channel.sender_waits);
      return false;
    }
    if (channel.in_flight.front() != op.tag) {
      wrong_message_ = ChannelFault{ChannelFault::Kind::kWrongMessage, {{rank, op.position}}};
      return false;
    }
    channel.in_flight.pop_front();
    wake(channel.sender_waits);
    step_over(rank);
    return true;
  }

  bool enter_barrier(int rank, const ChannelOp& op) {
    auto& inside = at(barriers_, op.channel);
    inside.push_back(rank);
    if (static_cast<int>(inside.size()) < at(barrier_sizes_, op.channel)) return false;
    for (const int member : inside) {
      step_over(member);
      if (member != rank) runnable_.push_back(member);
    }
    inside.clear();
    return true;
  }

  const std::vector<std::vector<ChannelOp>>& ranks_;
  std::vector<std::size_t> next_;
  std::vector<Channel> channels_;
  std::vector<std::vector<int>> barriers_;  // the ranks inside
  const std::vector<int>& barrier_sizes_;
  int capacity_;
  std::vector<int> runnable_;
  std::optional<ChannelFault> wrong_message_;
};

}  // namespace

std::optional<ChannelFault> find_channel_fault(const std::vector<std::vector<ChannelOp>>& ranks, int num_channels,
                                               const std::vector<int>& barrier_sizes, int capacity) {
  TRIDENT_CHECK(capacity >= 0, "channel capacity {}", capacity);
  return ChannelMachine(ranks, num_channels, barrier_sizes, capacity).run();
}

}  // namespace trident
