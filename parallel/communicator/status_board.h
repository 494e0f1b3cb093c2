// A training thread writes here what it is doing, and its lifeline thread reads it: no lock, no allocation, no system call.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trident {

// A text in a field of fixed size: cut to fit, always with a zero at its end. What was behind the new end stays, so short texts
// cost little.
template <std::size_t n>
void set_field(std::array<char, n>& field, std::string_view text) {
  field[text.copy(field.data(), n - 1)] = '\0';
}
template <std::size_t n>
std::string_view field_text(const std::array<char, n>& field) {
  const std::string_view all(field.data(), n);
  return all.substr(0, all.find('\0'));
}

enum class RunPhase : std::uint32_t { kStarting, kTraining, kEvaluating, kSaving, kFinishing, kGenerating };
std::string_view to_string(RunPhase phase);

// A value of whole words, so that it can be published word by word and sent as it is.
struct RankStatus {
  std::int64_t step = 0;       // of the run, from 1; 0 before the first
  std::uint64_t sequence = 0;  // of the collective last entered, in its communicator, from 1; 0: none yet
  std::uint64_t progress = 0;  // counts what the rank did, whatever it was
  double waited_seconds = 0;   // for `waiting`
  double waiting_as_of = 0;    // monotonic_seconds() of this process when `waiting` was written
  RunPhase phase = RunPhase::kStarting;
  std::array<char, 16> communicator{};  // of the collective last entered
  std::array<char, 20> operation{};     // "all_reduce"
  // Its lifeline fills these when it reports: the library call in which the rank stands.
  double call_seconds = 0;
  std::array<char, 16> call{};
  std::array<char, 256> waiting{};      // what it waits for: a PendingOperation's describe(); "" when it moved on since
};

// One writer, the rank's training thread; any number of readers, who see one moment's values. Setters cost nanoseconds.
class StatusBoard {
 public:
  void set_phase(RunPhase phase);
  void set_step(std::int64_t step);
  // The rank enters operation number `sequence` (from 1) of a communicator.
  void set_operation(std::string_view communicator, std::string_view operation, std::uint64_t sequence);
  // Still waiting; for Progress's idle hook. No progress: the other setters end it.
  void set_waiting(std::string_view what, double seconds_waited);

  RankStatus read() const;

 private:
  static constexpr std::size_t kWords = sizeof(RankStatus) / sizeof(std::uint64_t);
  static_assert(sizeof(RankStatus) % sizeof(std::uint64_t) == 0);
  void publish(std::size_t bytes);  // the first so many
  void progressed();

  RankStatus mine_;                             // the writer's own copy
  std::atomic<std::uint64_t> version_{0};       // odd while words change
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace trident
