// Layouts with the same pipeline schedule share these facts about its memory and messages, without units. Pure.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/schedule/schedule_generators.h"

namespace trident {

struct ScheduleKey {
  ScheduleKind kind = ScheduleKind::k1f1b;
  int pipeline = 1, chunks = 1, micro_batches = 1;
  auto operator<=>(const ScheduleKey&) const = default;
};

// Two actions of a rank, one right after the other.
struct Succession {
  ActionKind before{}, after{};
  int chunk_before = 0, chunk_after = 0;
  auto operator<=>(const Succession&) const = default;
};

struct RankFacts {
  std::vector<int> slots;  // by chunk: micro-batches that hold activations at once
  int activation_receives = 0, gradient_receives = 0;  // buffers, of training or evaluation
  std::vector<Succession> successions;                 // each kind once
};

using ScheduleFacts = std::vector<RankFacts>;  // by pipeline rank

// Made when asked for first. A schedule repeats itself: what its first and last micro-batches show is all, so that no more than
// three rounds of p of them are laid out, of few ranks eight. Safe to use from several threads.
class ScheduleBook {
 public:
  static constexpr int kRounds = 3, kRoundsOfFew = 8, kFewRanks = 4;
  explicit ScheduleBook(bool receives_early) : early_(receives_early) {}
  const ScheduleFacts& facts(const ScheduleKey& key);
  // Micro-batches that are laid out of `micro_batches`.
  static int laid_out(int pipeline, int micro_batches);

 private:
  bool early_;
  std::mutex mutex_;
  std::map<ScheduleKey, ScheduleFacts> facts_;
};

}  // namespace trident
