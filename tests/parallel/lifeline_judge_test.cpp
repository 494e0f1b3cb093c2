// Conclusions at given times: no process, no socket, no clock.
#include "parallel/health/lifeline_judge.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "parallel/communicator/status_board.h"
#include "parallel/health/lifeline_message.h"

namespace trident {
namespace {

using Step = LifelineJudge::Step;

RankStatus status_of(std::int64_t step, std::string_view waiting = "") {
  RankStatus status;
  status.phase = RunPhase::kTraining;
  status.step = step;
  set_field(status.waiting, waiting);
  return status;
}

// A judge on `rank` of a job of `size`, which hears everybody that it is connected to at time 0.
LifelineJudge judge_on(int rank, int size, int deputy = 1) {
  LifelineJudge judge({rank, deputy, 100 + rank, "here", 8});
  for (int r = 0; r < size; ++r) {
    const bool connected = r != rank && (rank == 0 || rank == deputy || r == 0 || r == deputy);
    if (connected) judge.join(r, 100 + r, "there", 0);
  }
  return judge;
}

void hear_all(LifelineJudge& judge, double now) {
  for (const auto& [rank, peer] : std::map<int, LifelineRank>(judge.peers())) judge.heard(rank, status_of(1), 0, false, now);
}

// Steps until the conclusion, every 10 ms from `from` on; when it came, or -1.
double concludes_at(LifelineJudge& judge, double from, double until) {
  for (int i = 0; from + 0.01 * i < until; ++i)
    if (judge.step(from + 0.01 * i) == Step::kConclude) return from + 0.01 * i;
  return -1;
}

TEST(LifelineJudge, KeepsQuietWhileAllIsWell) {
  LifelineJudge judge = judge_on(0, 4);
  for (double now = 0; now < 100; now += 1) {
    hear_all(judge, now);
    EXPECT_EQ(judge.step(now + 0.9), Step::kNothing);
  }
}

TEST(LifelineJudge, AsksAndWaitsForAnswersFromThoseThatLive) {
  LifelineJudge judge = judge_on(0, 4);
  judge.closed(2);
  EXPECT_EQ(judge.step(1), Step::kAsk);
  EXPECT_EQ(judge.step(1.01), Step::kNothing);
  judge.heard(1, status_of(5), 0, true, 1.11);
  EXPECT_EQ(judge.step(1.11), Step::kNothing);
  judge.heard(3, status_of(5), 0, false, 1.12);  // a heartbeat is no answer
  EXPECT_EQ(judge.step(1.12), Step::kNothing);
  judge.heard(3, status_of(5), 0, true, 1.13);
  EXPECT_EQ(judge.step(1.13), Step::kConclude);
  EXPECT_EQ(judge.step(1.14), Step::kNothing);  // once
  EXPECT_EQ(judge.exit_code(), 76);
}

TEST(LifelineJudge, ConcludesWithoutAnswersInLessThanAFifthOfASecond) {
  LifelineJudge judge = judge_on(0, 4);
  judge.closed(2);
  const double at = concludes_at(judge, 1, 3);
  EXPECT_GT(at, 1.1);
  EXPECT_LT(at, 1.2);
}

TEST(LifelineJudge, SilenceCountsFromTheLastWord) {
  LifelineJudge judge = judge_on(0, 3);
  judge.heard(1, status_of(1), 0, false, 5);
  judge.heard(2, status_of(1), 0, false, 5);
  judge.heard(1, status_of(1), 0, false, 12);
  EXPECT_EQ(judge.step(12.9), Step::kNothing);
  EXPECT_EQ(judge.step(13.1), Step::kAsk);
  EXPECT_EQ(judge.peers().at(2).trouble, LifelineTrouble::kSilent);
  EXPECT_EQ(judge.peers().at(1).trouble, LifelineTrouble::kNone);
}

TEST(LifelineJudge, ARankThatIsHeardAgainInTimeIsForgiven) {
  LifelineJudge judge = judge_on(0, 3);
  judge.heard(1, status_of(1), 0, false, 8);
  EXPECT_EQ(judge.step(8.1), Step::kAsk);
  judge.heard(2, status_of(1), 0, false, 8.15);
  EXPECT_EQ(judge.step(8.2), Step::kNothing);
  EXPECT_EQ(concludes_at(judge, 8.2, 15.9), -1);
}

TEST(LifelineJudge, TheFinishedMayCloseAndKeepSilent) {
  LifelineJudge judge = judge_on(0, 3);
  judge.goodbye(1);
  judge.closed(1);
  judge.goodbye(2);
  EXPECT_EQ(concludes_at(judge, 0, 20), -1);
}

TEST(LifelineJudge, TheGravestTroubleIsTheCause) {
  LifelineJudge judge = judge_on(0, 6);
  judge.trouble(1, LifelineTrouble::kLeft, "", 76);
  judge.closed(1);
  judge.trouble(2, LifelineTrouble::kFailed, "connection reset", 70);
  judge.closed(2);
  judge.closed(4);
  judge.closed(3);
  EXPECT_EQ(judge.line(1),
            "rank 3 (host there, pid 103) was killed or crashed in starting; likewise rank 4; rank 2 failed; ranks 0, 5 not "
            "waiting; exit code 76 on all ranks");
  EXPECT_EQ(judge.exit_code(), 76);
}

TEST(LifelineJudge, AFailureGivesItsExitCodeAndIsNotDowngraded) {
  LifelineJudge judge = judge_on(0, 3);
  judge.trouble(2, LifelineTrouble::kFailed, "no such file", 65);
  judge.trouble(2, LifelineTrouble::kLeft, "", 76);
  judge.closed(2);
  EXPECT_EQ(judge.exit_code(), 65);
  EXPECT_EQ(judge.line(1),
            "rank 2 (host there, pid 102) failed: no such file; in starting; ranks 0, 1 not waiting; exit code 65 on all ranks");
}

TEST(LifelineJudge, ItsOwnFailureCounts) {
  LifelineJudge judge = judge_on(0, 3);
  judge.fail_self(LifelineTrouble::kFailed, "bad luck", 70);
  judge.update_self(status_of(9), 0);
  EXPECT_EQ(judge.step(1), Step::kAsk);
  EXPECT_EQ(judge.line(1),
            "rank 0 (host here, pid 100) failed: bad luck; in training, step 9; ranks 1, 2 not waiting; exit code 70 on all ranks");
}

TEST(LifelineJudge, TheDeputySpeaksOnlyWithoutAHub) {
  LifelineJudge judge = judge_on(1, 5);
  judge.closed(3);
  hear_all(judge, 1);
  EXPECT_EQ(concludes_at(judge, 1, 8.9), -1);  // the hub sees it too
  hear_all(judge, 8.9);
  judge.closed(0);
  EXPECT_NEAR(concludes_at(judge, 9, 10), 9.18, 0.02);
  EXPECT_EQ(judge.line(9).substr(0, 60), "rank 0 (host there, pid 100) was killed or crashed in traini");
}

TEST(LifelineJudge, TheDeputySpeaksForAHubThatHasFinished) {
  LifelineJudge judge = judge_on(1, 4);
  judge.goodbye(0);
  judge.closed(3);
  EXPECT_EQ(judge.step(1), Step::kNothing);  // the hub is still there
  judge.closed(0);
  EXPECT_EQ(judge.step(2), Step::kAsk);
}

TEST(LifelineJudge, OthersSpeakWhenHubAndDeputyAreGone) {
  LifelineJudge judge = judge_on(4, 6);
  EXPECT_TRUE(judge.is_one_of_many());
  judge.closed(0);
  EXPECT_EQ(judge.step(1), Step::kNothing);
  judge.closed(1);
  EXPECT_GE(concludes_at(judge, 1.1, 2), 1.1);
}

TEST(LifelineJudge, OthersLoseTheirPatienceWithASilentDeputy) {
  LifelineJudge judge = judge_on(4, 6);
  judge.closed(0);
  judge.heard(1, status_of(1), 0, false, 1);
  EXPECT_EQ(concludes_at(judge, 1, 2.4), -1);
  EXPECT_GE(concludes_at(judge, 2.4, 4), 2.5);
}

TEST(LifelineJudge, OthersLeaveALostDeputyToTheHub) {
  LifelineJudge judge = judge_on(4, 6);
  judge.closed(1);
  judge.heard(0, status_of(1), 0, false, 1);
  EXPECT_EQ(concludes_at(judge, 1, 8.9), -1);
}

TEST(LifelineJudge, ATroubledPeerBeforeTheHubIsReachedDoesNotMakeADeputySpeak) {
  LifelineJudge judge({1, 1, 101, "here", 8});
  judge.join(2, 102, "there", 0);
  judge.closed(2);
  EXPECT_EQ(concludes_at(judge, 1, 3), -1);
}

TEST(LifelineJudge, WordsOfUnknownRanksAreIgnored) {
  LifelineJudge judge = judge_on(0, 2);
  judge.heard(7, status_of(1), 0, false, 1);
  judge.trouble(7, LifelineTrouble::kFailed, "x", 1);
  judge.goodbye(7);
  judge.closed(7);
  EXPECT_EQ(judge.peers().size(), 1u);
  EXPECT_EQ(judge.step(1), Step::kNothing);
}

TEST(LifelineJudge, WantsToBeCalledSoonWhileItDecides) {
  LifelineJudge judge = judge_on(0, 3);
  EXPECT_GT(judge.next_step(1), 1.2);
  judge.closed(2);
  judge.step(1);
  EXPECT_DOUBLE_EQ(judge.next_step(1.05), 1 + LifelineJudge::kCollectSeconds);
}

// Calls that never return

RankStatus stuck_for(double seconds) {
  RankStatus status = status_of(1);
  set_field(status.call, "MPI_Test");
  status.call_seconds = seconds;
  return status;
}

TEST(LifelineJudge, ALongCallIsTrouble) {
  LifelineJudge judge = judge_on(0, 3);
  judge.heard(2, stuck_for(7.9), 0, false, 1);
  EXPECT_EQ(judge.step(1), Step::kNothing);
  judge.heard(2, stuck_for(8.2), 0, false, 1.3);
  EXPECT_EQ(judge.step(1.3), Step::kAsk);
  EXPECT_EQ(judge.exit_code(), 76);
  EXPECT_EQ(judge.line(1.3).substr(0, 63), "rank 2 (host there, pid 102) has stood in MPI_Test for 8.2 s in");
  judge.heard(2, status_of(2), 0, true, 1.35);  // it returned after all
  EXPECT_EQ(concludes_at(judge, 1.35, 6), -1);
}

TEST(LifelineJudge, ItsOwnLongCallIsTrouble) {
  LifelineJudge judge = judge_on(0, 3);
  judge.update_self(stuck_for(8.1), 8);
  EXPECT_EQ(judge.step(1), Step::kAsk);
  judge.update_self(status_of(2), 0);
  EXPECT_EQ(judge.step(1.1), Step::kNothing);
}

TEST(LifelineJudge, ASilentOrLostRankExplainsALongCall) {
  LifelineJudge judge = judge_on(0, 4);
  judge.heard(2, stuck_for(8.2), 0, false, 1);
  judge.closed(3);
  EXPECT_EQ(judge.line(1).substr(0, 42), "rank 3 (host there, pid 103) was killed or");
  judge.heard(2, stuck_for(8.2), 0, false, 9);
  judge.step(9);  // rank 1 has been silent since 0
  EXPECT_EQ(judge.peers().at(1).trouble, LifelineTrouble::kSilent);
}

// Parting

TEST(LifelineJudge, TellsTheFinishedToPart) {
  LifelineJudge judge = judge_on(0, 3);
  judge.finish_self(138);
  judge.goodbye(1);
  EXPECT_EQ(concludes_at(judge, 1, 7), -1);
  judge.heard(2, status_of(9), 0, false, 7);
  EXPECT_EQ(concludes_at(judge, 7, 14), -1);
  judge.goodbye(2);
  EXPECT_EQ(judge.step(14), Step::kNothing);
  EXPECT_NEAR(judge.next_step(14), 22, 1e-9);
  judge.heard(1, stuck_for(9), 0, false, 20);  // no trouble any more
  judge.update_self(stuck_for(9), 0);
  EXPECT_NEAR(concludes_at(judge, 14, 30), 22, 0.02);
  EXPECT_FALSE(judge.any_trouble());
  EXPECT_EQ(judge.exit_code(), 138);
  EXPECT_EQ(
      judge.line(22),
      "the job is done and its files are written, but its ranks have not parted for 8 s; rank 2 (host there, pid 102) has "
      "not ended, and the launcher waits for it: kill it there; ranks 0, 1 in MPI_Test; exit code 138 on all ranks");
}

TEST(LifelineJudge, TellsToKillAllThatAreStoppedAtTheirEndAndNobodyElse) {
  LifelineJudge judge = judge_on(0, 6);
  judge.finish_self(0);
  judge.heard(5, stuck_for(1), 0, false, 1);
  for (int rank = 1; rank < 6; ++rank) judge.goodbye(rank);
  EXPECT_EQ(judge.step(1), Step::kNothing);
  judge.heard(1, stuck_for(7), 0, false, 8.9);
  judge.heard(3, status_of(9), 0, false, 8.9);
  judge.closed(4);
  EXPECT_EQ(judge.step(9), Step::kConclude);
  EXPECT_EQ(judge.line(9),
            "the job is done and its files are written, but its ranks have not parted for 8 s; rank 2 (host there, pid 102), "
            "rank 5 (host there, pid 105) have not ended, and the launcher waits for them: kill them there; rank 1 in MPI_Test; "
            "rank 3 in no call of MPI; exit code 0 on all ranks");
}

TEST(LifelineJudge, TheFinishedLeavePartingToTheHub) {
  LifelineJudge judge = judge_on(4, 6);
  judge.finish_self(0);
  judge.goodbye(0);
  judge.goodbye(1);
  for (double now = 0; now < 20; now += 1) {
    judge.heard(0, status_of(1), 0, false, now);
    EXPECT_EQ(judge.step(now), Step::kNothing);
  }
  judge.closed(0);
  judge.closed(1);
  EXPECT_NEAR(concludes_at(judge, 21, 30), 29, 0.02) << "from then on it is its own business";
}

// The line

LifelineRank rank_of(int rank, std::string_view waiting = "") {
  LifelineRank r;
  r.rank = rank;
  r.pid = 4000 + rank;
  r.host = "n1";
  r.status = status_of(12, waiting);
  return r;
}

TEST(LifelineLine, SaysWhereTheRankWasAndWhatItWaitedFor) {
  LifelineRank lost = rank_of(5, "recv #3 from rank 4 over pp: rank 4 has not sent");
  lost.trouble = LifelineTrouble::kLost;
  lost.status.phase = RunPhase::kEvaluating;
  lost.status.waited_seconds = 0.42;
  lost.status.sequence = 3;
  set_field(lost.status.operation, "recv");
  set_field(lost.status.communicator, "pp");
  EXPECT_EQ(lifeline_line({lost}, 1, 76),
            "rank 5 (host n1, pid 4005) was killed or crashed in evaluating, step 12, last entered recv #3 over pp, "
            "waiting 0.4 s in recv #3 from rank 4 over pp: rank 4 has not sent; exit code 76 on all ranks");
}

TEST(LifelineLine, SaysForHowLongNothingWasHeardAndNothingMoved) {
  LifelineRank silent = rank_of(5);
  silent.trouble = LifelineTrouble::kSilent;
  silent.heard_at = 2;
  silent.idle_seconds = 31;
  EXPECT_EQ(lifeline_line({silent}, 10.25, 76),
            "rank 5 (host n1, pid 4005) was stopped or cannot be reached, not heard of for 8.2 s, in training, "
            "step 12, without progress for 31 s; exit code 76 on all ranks");
}

TEST(LifelineLine, GroupsTheOthersByWhatTheyWaitedFor) {
  std::vector<LifelineRank> ranks{rank_of(0, "c"), rank_of(1, "a"), rank_of(2), rank_of(3, "b"), rank_of(4, "a"),
                                  rank_of(5), rank_of(6, "b"), rank_of(7, "a"), rank_of(8, "d"), rank_of(9)};
  ranks[2].trouble = LifelineTrouble::kSilent;
  ranks[9].finished = true;
  const std::string line = lifeline_line(ranks, 0, 76);
  EXPECT_EQ(
      line.substr(line.find("step 12") + 7),
      "; ranks 1, 4, 7 waited in a; ranks 3, 6 waited in b; ranks 0, 8 waited elsewhere; rank 5 not waiting; "
      "exit code 76 on all ranks");
}

TEST(LifelineLine, MentionsOtherTroubles) {
  std::vector<LifelineRank> ranks{rank_of(0), rank_of(1), rank_of(2), rank_of(3)};
  ranks[0].trouble = LifelineTrouble::kFailed;
  ranks[1].trouble = LifelineTrouble::kSilent;
  ranks[2].trouble = LifelineTrouble::kFailed;
  ranks[3].trouble = LifelineTrouble::kLeft;
  const std::string line = lifeline_line(ranks, 0, 76);
  EXPECT_EQ(line.substr(line.find("step 12") + 7), "; likewise rank 2; nothing is heard of rank 1; exit code 76 on all ranks");
}

TEST(LifelineLine, StaysALineAndShort) {
  LifelineRank failed = rank_of(1);
  failed.trouble = LifelineTrouble::kFailed;
  failed.reason = "first\nsecond\r" + std::string(5000, 'x');
  const std::string line = lifeline_line({failed}, 0, 76);
  EXPECT_EQ(line.find_first_of("\r\n"), std::string::npos);
  EXPECT_LT(line.size(), 900u);
}

TEST(LifelineLine, NobodyInTroubleIsNoLine) { EXPECT_EQ(lifeline_line({rank_of(0), rank_of(1)}, 0, 76), ""); }

TEST(LifelineLine, RankLists) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({3}), "3");
  EXPECT_EQ(rank_list({3, 4}), "3, 4");
  EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8, 9, 10, 12, 13}), "0-2, 5, 7-10, 12, 13");
  EXPECT_EQ(rank_list({0, 4, 8}), "0, 4, 8");
  EXPECT_EQ(rank_list({1, 5, 9, 13, 14}), "1-13 step 4, 14");
}

// One rank of each node, of 1,024.
TEST(LifelineLine, ListsStridedRanksShortlyAndOthersWithAnEnd) {
  std::vector<int> strided, pairs;
  for (int r = 0; r < 4096; r += 4) {
    strided.push_back(r);
    pairs.insert(pairs.end(), {r, r + 1});
  }
  EXPECT_EQ(rank_list(strided), "0-4092 step 4");
  EXPECT_EQ(rank_list(pairs), "0, 1, 4, 5, 8, 9, 12, 13 and 2040 more");
  std::vector<LifelineRank> ranks;
  for (int r = 0; r < 16384; ++r) {
    ranks.push_back(rank_of(r, std::string(255, static_cast<char>('a' + r * r % 7))));
    if (r % 11 == 3) ranks.back().trouble = r % 5 == 0 ? LifelineTrouble::kFailed : LifelineTrouble::kLost;
    if (r % 11 == 4) ranks.back().trouble = LifelineTrouble::kSilent;
  }
  ranks[3].reason = std::string(5000, 'x');
  EXPECT_LT(lifeline_line(ranks, 1, 76).size(), LifelineDecision().line.size());
}

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
