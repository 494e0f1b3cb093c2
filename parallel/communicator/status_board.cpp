#include "parallel/communicator/status_board.h"

#include <bit>
#include <cstring>

#include "core/clock.h"

namespace trident {

std::string_view to_string(RunPhase phase) {
  switch (phase) {
    case RunPhase::kStarting: return "starting";
    case RunPhase::kTraining: return "training";
    case RunPhase::kEvaluating: return "evaluating";
    case RunPhase::kSaving: return "saving";
    case RunPhase::kFinishing: return "finishing";
    case RunPhase::kGenerating: return "generating";
  }
  return "an unknown phase";
}

void StatusBoard::set_phase(RunPhase phase) {
  mine_.phase = phase;
  progressed();
  publish(offsetof(RankStatus, waiting) + 1);
}

void StatusBoard::set_step(std::int64_t step) {
  mine_.step = step;
  progressed();
  publish(offsetof(RankStatus, waiting) + 1);
}

void StatusBoard::set_operation(std::string_view communicator, std::string_view operation, std::uint64_t sequence) {
  set_field(mine_.communicator, communicator);
  set_field(mine_.operation, operation);
  mine_.sequence = sequence;
  progressed();
  publish(offsetof(RankStatus, waiting) + 1);
}

void StatusBoard::set_waiting(std::string_view what, double seconds_waited) {
  set_field(mine_.waiting, what);
  mine_.waited_seconds = seconds_waited;
  mine_.waiting_as_of = monotonic_seconds();
  publish(sizeof(RankStatus));
}

void StatusBoard::progressed() {
  ++mine_.progress;
  mine_.waiting[0] = '\0';
}

// A reader that sees any of the new words also sees the odd version before them, one that sees the even version sees all words.
void StatusBoard::publish(std::size_t bytes) {
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  const char* source = reinterpret_cast<const char*>(&mine_);
  for (std::size_t w = 0; w * sizeof(std::uint64_t) < bytes; ++w) {
    std::uint64_t word;
    std::memcpy(&word, source + w * sizeof word, sizeof word);
    words_[w].store(word, std::memory_order_release);
  }
  version_.store(version + 2, std::memory_order_release);
}

RankStatus StatusBoard::read() const {
  std::array<std::uint64_t, kWords> words;
  std::uint64_t before, after;
  do {
    before = version_.load(std::memory_order_acquire);
    for (std::size_t w = 0; w < kWords; ++w) words[w] = words_[w].load(std::memory_order_acquire);
    after = version_.load(std::memory_order_relaxed);
  } while (before != after || before % 2 == 1);
  return std::bit_cast<RankStatus>(words);
}

}  // namespace trident
