#include "parallel/communicator/status_board.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace trident {
namespace {

TEST(StatusBoard, ReadsBackWhatWasSet) {
  StatusBoard board;
  EXPECT_EQ(board.read().phase, RunPhase::kStarting);
  EXPECT_EQ(board.read().sequence, 0u);
  board.set_phase(RunPhase::kEvaluating);
  board.set_step(7);
  board.set_operation("tp", "reduce_scatter", 12);
  board.set_waiting("reduce_scatter #12 over tp: waiting for ranks 1, 2", 0.25);
  const RankStatus status = board.read();
  EXPECT_EQ(status.phase, RunPhase::kEvaluating);
  EXPECT_EQ(status.step, 7);
  EXPECT_EQ(field_text(status.communicator), "tp");
  EXPECT_EQ(field_text(status.operation), "reduce_scatter");
  EXPECT_EQ(status.sequence, 12u);
  EXPECT_EQ(field_text(status.waiting), "reduce_scatter #12 over tp: waiting for ranks 1, 2");
  EXPECT_EQ(status.waited_seconds, 0.25);
  EXPECT_GT(status.waiting_as_of, 0);
}

TEST(StatusBoard, EveryProgressEndsAWaitAndAWaitIsNone) {
  StatusBoard board;
  const std::array<std::function<void()>, 3> setters{[&] { board.set_phase(RunPhase::kSaving); }, [&] { board.set_step(3); },
                                                     [&] { board.set_operation("dp", "barrier", 1); }};
  for (const auto& set : setters) {
    board.set_waiting("barrier #1 over dp", 1);
    const std::uint64_t before = board.read().progress;
    set();
    EXPECT_EQ(field_text(board.read().waiting), "");
    EXPECT_EQ(board.read().progress, before + 1);
  }
}

TEST(StatusBoard, LongTextsAreCut) {
  StatusBoard board;
  board.set_operation(std::string(100, 'c'), std::string(100, 'o'), 1);
  board.set_waiting(std::string(1000, 'w'), 1);
  const RankStatus status = board.read();
  EXPECT_EQ(field_text(status.communicator), std::string(15, 'c'));
  EXPECT_EQ(field_text(status.operation), std::string(19, 'o'));
  EXPECT_EQ(field_text(status.waiting), std::string(255, 'w'));
}

TEST(StatusBoard, AFieldWithoutAnEndIsReadToItsEnd) {
  std::array<char, 4> field{'a', 'b', 'c', 'd'};
  EXPECT_EQ(field_text(field), "abcd");
}

TEST(StatusBoard, PhasesHaveNames) {
  EXPECT_EQ(to_string(RunPhase::kStarting), "starting");
  EXPECT_EQ(to_string(RunPhase::kTraining), "training");
  EXPECT_EQ(to_string(RunPhase::kEvaluating), "evaluating");
  EXPECT_EQ(to_string(RunPhase::kSaving), "saving");
  EXPECT_EQ(to_string(RunPhase::kFinishing), "finishing");
  EXPECT_EQ(to_string(RunPhase::kGenerating), "generating");
  EXPECT_EQ(to_string(static_cast<RunPhase>(77)), "an unknown phase");  // from a peer's memory
}

// The writer keeps all fields equal; a reader must never see a mixture.
TEST(StatusBoard, AReaderSeesOneMoment) {
  StatusBoard board;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !stop; ++i) {
      const std::string text = std::to_string(i);
      board.set_operation(text, text, i);
      if (i % 3 == 0) board.set_waiting(text + " " + text, static_cast<double>(i));
      for (int pause = 0; pause < 100; ++pause) __builtin_ia32_pause();  // as a training thread, which has other things to do
    }
  });
  std::uint64_t last = 0, seen = 0;
  for (int i = 0; i < 20000 || seen < 100; ++i) {
    const RankStatus status = board.read();
    if (status.sequence == 0) continue;
    ASSERT_GE(status.sequence, last);
    seen += status.sequence != last ? 1 : 0;
    last = status.sequence;
    const std::string text = std::to_string(last);
    ASSERT_EQ(field_text(status.communicator), text);
    ASSERT_EQ(field_text(status.operation), text);
    if (status.waiting[0] == '\0') continue;
    ASSERT_EQ(field_text(status.waiting), text + " " + text);
    ASSERT_EQ(status.waited_seconds, static_cast<double>(last));
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace trident
