// Ranks as processes that are killed, stopped, fail and leave: everybody ends, and one line in the whole job says why.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <stdexcept>

#include "core/check.h"
#include "parallel/health/lifeline_judge.h"
#include "tests/parallel/lifeline_ranks.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

bool starts_with(const std::string& text, const std::string& start) { return text.starts_with(start); }

void notice_silence_soon(LifelineOptions& options) { options.silence_seconds = kSilence; }

RankBody training(int victim) {
  return [victim](ForkedRank& self) { return train_until_woken(self, victim); };
}

std::string rest_of_five(int victim) {
  std::vector<int> rest{0, 1, 2, 3, 4};
  rest.erase(rest.begin() + victim);
  return rank_list(rest);
}

// Once `victim` is killed, the others end by themselves.
void expect_a_kill_ends(LifelineJob& job, int victim) {
  job.settle();
  job.kill(victim, SIGKILL);
  expect_all_end(job.wait(), {victim});
}

class OneRankOfFive : public ::testing::TestWithParam<int> {};

TEST_P(OneRankOfFive, KilledIsNamedOnceAndTheOthersEnd) {
  const int victim = GetParam();
  LifelineJob job(5, training(victim));
  expect_a_kill_ends(job, victim);
  EXPECT_EQ(the_line(job, 4),
            fmt::format("{} was killed or crashed in training, step 17, last entered all_reduce #42 over tp; ranks {} waited in "
                        "all_reduce #42 over tp: waiting for rank {}; exit code 76 on all ranks",
                        who(job, victim), rest_of_five(victim), victim));
}

TEST_P(OneRankOfFive, StoppedIsNamedByItsSilence) {
  const int victim = GetParam();
  LifelineJob job(5, training(victim), notice_silence_soon);
  job.settle();
  job.kill(victim, SIGSTOP);
  expect_all_end(job.wait({victim}), {victim});
  const std::string line = the_line(job, 4);
  EXPECT_GE(seconds_after(who(job, victim) + " was stopped or cannot be reached, not heard of for ", line), kSilence) << line;
  EXPECT_PRED2(contains, line, ", in training, step 17, last entered all_reduce #42 over tp; ranks ");

  job.kill(victim, SIGCONT);  // it finds the verdict in its socket and ends like the others
  expect_all_end(job.wait(), {});
  EXPECT_EQ(job.words().woken, std::vector<std::string>{line});
}

TEST_P(OneRankOfFive, FailedByAnExceptionSaysWhy) {
  const int victim = GetParam();
  LifelineJob job(5, [victim](ForkedRank& self) {
    self.lifeline.board().set_phase(RunPhase::kSaving);
    if (self.rank != victim) return train_until_woken(self, victim);
    self.await_order();
    return self.lifeline.report_failure("/data/x.bin: the file\nis damaged", 65) ? 65 : 99;
  });
  job.settle();
  job.order(victim);
  expect_all_end(job.wait(), {}, 65);
  EXPECT_EQ(the_line(job, 4),
            fmt::format("{} failed: /data/x.bin: the file is damaged; in saving; ranks {} waited in all_reduce #42 over tp: "
                        "waiting for rank {}; exit code 65 on all ranks",
                        who(job, victim), rest_of_five(victim), victim));
}

INSTANTIATE_TEST_SUITE_P(Lifeline, OneRankOfFive, ::testing::Values(0, 1, 2, 4));

TEST(Lifeline, TwoDeathsAtOnceAreOneLine) {
  LifelineJob job(6, training(3));
  job.settle();
  job.kill(3, SIGKILL);
  job.kill(5, SIGKILL);
  expect_all_end(job.wait(), {3, 5});
  const std::string line = the_line(job, 4);
  EXPECT_PRED2(starts_with, line, who(job, 3) + " was killed or crashed");
  EXPECT_PRED2(contains, line, "; likewise rank 5; ranks 0-2, 4 waited in ");
}

// A node with hub and deputy goes down: the others have nobody to talk to. The last of them notices after the first has ended.
TEST(Lifeline, SurvivorsOfHubAndDeputyPrintOneLineTogether) {
  LifelineJob job(6, training(0), [](LifelineOptions& options) { options.grace_seconds = 4; });
  job.settle();
  job.kill(5, SIGSTOP);
  job.kill(1, SIGKILL);
  job.kill(0, SIGKILL);
  pause_for(1);
  job.kill(5, SIGCONT);
  expect_all_end(job.wait(), {0, 1});
  const JobWords words = job.words();
  ASSERT_EQ(words.printed.size(), 1u);
  EXPECT_PRED2(starts_with, words.printed[0], who(job, 0) + " was killed or crashed in training, step 17");
  EXPECT_PRED2(contains, words.printed[0], "; likewise rank 1; ");
  EXPECT_EQ(words.woken.size(), 4u);
}

TEST(Lifeline, ADeputyOnAnotherNodeSpeaksForALostNode) {
  LifelineJob job(6, training(0), [](LifelineOptions& options) { options.deputy = lifeline_deputy({0, 0, 0, 1, 1, 1}); });
  job.settle();
  for (const int r : {2, 1, 0}) job.kill(r, SIGKILL);
  expect_all_end(job.wait(), {0, 1, 2});
  EXPECT_PRED2(contains, the_line(job, 3), "; likewise ranks 1, 2; ranks 3-5 waited in ");
}

TEST(Lifeline, AJobOfTwoSurvivesEitherRank) {
  for (const int victim : {0, 1}) {
    LifelineJob job(2, training(victim));
    expect_a_kill_ends(job, victim);
    EXPECT_PRED2(starts_with, the_line(job, 1), who(job, victim) + " was killed or crashed in training, step 17");
  }
}

// The training thread hangs in a library: the lifeline ends the process after the grace period.
TEST(Lifeline, ARankThatCannotBeWokenIsEnded) {
  LifelineJob job(4, [](ForkedRank& self) {
    if (self.rank == 2) return train_until_woken(self, 1);
    self.settle();
    pause_for(60);
    return 0;
  }, [](LifelineOptions& options) { options.grace_seconds = 0.3; });
  expect_a_kill_ends(job, 1);
  EXPECT_PRED2(contains, the_line(job, 3),
               "; rank 2 waited in all_reduce #42 over tp: waiting for rank 1; ranks 0, 3 not waiting; exit");
}

// Rank 2 has waited, and computes since.
TEST(Lifeline, AWaitThatIsOverIsNotReported) {
  LifelineJob job(3, [](ForkedRank& self) {
    if (self.rank == 2) self.lifeline.board().set_waiting("something long ago", 1);
    for (int turn = 0; turn < 15; ++turn) pause_for(0.02);  // until it is old
    self.settle();
    while (!self.woken) pause_for(0.01);
    return self.woken ? 76 : 0;
  });
  expect_a_kill_ends(job, 1);
  EXPECT_PRED2(contains, the_line(job, 2), " in starting; ranks 0, 2 not waiting; exit code 76 on all ranks");
}

TEST(Lifeline, ARankThatLeavesWithoutAWordIsNamed) {
  LifelineJob job(4, [](ForkedRank& self) { return self.rank == 3 ? 5 : train_until_woken(self, 3); });
  const std::vector<RankEnd> ends = job.wait();
  EXPECT_EQ(ends[3].exit_code, 5);
  expect_all_end(ends, {3});
  EXPECT_PRED2(starts_with, the_line(job, 3), who(job, 3) + " left before the job's end in starting; ");
}

// Ranks that are told of a failure from elsewhere first, and leave in a hurry, do not hide its cause.
TEST(Lifeline, ConsequencesDoNotHideTheCause) {
  std::array<int, 2> world{};
  ASSERT_EQ(pipe(world.data()), 0);
  LifelineJob job(4, [&](ForkedRank& self) {
    char word = 0;
    close(world[self.rank == 1 ? 0 : 1]);
    if (self.rank == 1) {
      if (write(world[1], &word, 1) != 1) return 99;
      return self.lifeline.report_failure("out of ideas") ? 76 : 99;
    }
    if (self.rank == 2) return read(world[0], &word, 1) == 1 ? 76 : 99;  // its world failed before its lifeline said so
    return train_until_woken(self, 1);
  });
  for (const int end : world) close(end);
  expect_all_end(job.wait(), {});
  EXPECT_PRED2(starts_with, the_line(job, 2), who(job, 1) + " failed: out of ideas; in starting; rank");
}

TEST(Lifeline, RanksLeaveInAnyOrderAfterGoodbye) {
  for (const bool hub_first : {true, false}) {
    LifelineJob job(5, [&](ForkedRank& self) {
      self.lifeline.goodbye();
      const int place = hub_first ? self.rank : 4 - self.rank;
      pause_for(0.15 * place);
      return 0;
    });
    expect_all_end(job.wait(), {}, 0);
    const JobWords words = job.words();
    EXPECT_TRUE(words.printed.empty() && words.woken.empty());
  }
}

// Rank 3 has finished and waits in a library for rank 4, which is killed.
TEST(Lifeline, AFinishedRankStillObeysTheVerdict) {
  LifelineJob job(5, [](ForkedRank& self) {
    if (self.rank == 3) self.lifeline.goodbye();
    return train_until_woken(self, 4);
  });
  expect_a_kill_ends(job, 4);
  EXPECT_PRED2(contains, the_line(job, 4), "; ranks 0-2 waited in ");
}

// All processes stand still for longer than the silence limit; the hub runs first again.
TEST(Lifeline, ASuspendedJobGoesOn) {
  LifelineJob job(4, [](ForkedRank& self) {
    self.settle();
    for (int i = 0; i < 12 && !self.woken; ++i) pause_for(0.1);
    self.lifeline.goodbye();
    return self.woken ? 76 : 0;
  }, notice_silence_soon);
  job.settle();
  for (const int r : {3, 2, 1, 0}) job.kill(r, SIGSTOP);
  pause_for(4.0 / 3 * kSilence);
  for (const int r : {0, 1, 2, 3}) {
    job.kill(r, SIGCONT);
    pause_for(0.1);
  }
  expect_all_end(job.wait(), {}, 0);
  EXPECT_TRUE(job.words().printed.empty());
}

TEST(Lifeline, AHubThatStoodStillForLessThanTheLimitAccusesNobody) {
  LifelineJob job(4, [](ForkedRank& self) {
    self.settle();
    for (int i = 0; i < (self.rank == 0 ? 12 : 36) && !self.woken; ++i) pause_for(0.1);
    self.lifeline.goodbye();
    return self.woken ? 76 : 0;
  }, [](LifelineOptions& options) { options.silence_seconds = options.rank == 0 ? 2 : 17; });
  job.settle();
  job.kill(0, SIGSTOP);
  pause_for(4.3);
  job.kill(0, SIGCONT);
  expect_all_end(job.wait(), {}, 0);
  EXPECT_TRUE(job.words().printed.empty());
}

TEST(Lifeline, SixtyFourRanksHangOnOneHub) {
  LifelineJob job(64, training(40));
  expect_a_kill_ends(job, 40);
  EXPECT_PRED2(contains, the_line(job, 63),
               "; ranks 0-39, 41-63 waited in all_reduce #42 over tp: waiting for rank 40; exit code 76");
}

TEST(Lifeline, AJobOfOneNodeNeedsNoPort) {
  LifelineJob job(4, training(2), [](LifelineOptions& options) { options.reach = LifelineReach::kNode; });
  expect_a_kill_ends(job, 2);
  EXPECT_PRED2(starts_with, the_line(job, 3), who(job, 2) + " was killed or crashed in training, step 17");
}

// An exception on the hub's own thread, where nobody else would see it: its deputy speaks.
TEST(Lifeline, AnErrorOfTheLifelineItselfEndsTheJobAsAnyOther) {
  LifelineJob job(4, training(2), [](LifelineOptions& options) {
    if (options.rank == 0) options.print = [](const LifelineVerdict&) { throw std::runtime_error("no paper"); };
  });
  expect_a_kill_ends(job, 2);
  const auto [printed, woken] = job.words();
  EXPECT_PRED2(starts_with, printed.at(0), who(job, 2) + " was killed or crashed in training, step 17");
  const std::string own = who(job, 0) + " failed: its lifeline ended: no paper; exit code 76";
  EXPECT_EQ(std::count(woken.begin(), woken.end(), own), 1);
}

// Ranks as processes that stand in calls of the message library, and ranks that are done and do not part.

// Calls of a library

// Every rank has one of its own: ranks are forked.
std::function<void(LifelineOptions&)> marking(const CallMark& mark, double parting_seconds = 8) {
  return [&mark, parting_seconds](LifelineOptions& options) {
    options.calls = &mark;
    options.grace_seconds = 0.3;
    options.silence_seconds = kSilence;
    options.parting_seconds = parting_seconds;
  };
}

TEST(Lifeline, ARankThatStandsInACallIsNamedAndEnded) {
  for (const int victim : {0, 2}) {
    CallMark mark;
    LifelineJob job(
        4,
        [&mark, victim](ForkedRank& self) {
          if (self.rank != victim) return train_until_woken(self, victim);
          self.lifeline.board().set_step(17);
          mark.during("MPI_Test", [] { pause_for(60); });
          return 0;
        },
        marking(mark));
    expect_all_end(job.wait(), {});
    const std::string line = the_line(job, 4);
    EXPECT_GE(seconds_after(who(job, victim) + " has stood in MPI_Test for ", line), kSilence) << line;
    EXPECT_PRED2(contains, line, " in starting, step 17");
    EXPECT_PRED2(
        contains, line,
        fmt::format("; that call never waits: most likely a process outside the job holds a connection to "
                    "the MPI port of rank {}; let no host outside the job reach the "
                    "ranks' MPI ports: a firewall, or a network of the job's own (docs/stopping.md); ranks ",
                    victim));
  }
}

TEST(Lifeline, ManyCallsAreNoLongCall) {
  CallMark mark;
  LifelineJob job(
      3,
      [&mark](ForkedRank& self) {
        for (int i = 0; i < 18 && !self.woken; ++i) mark.during("MPI_Test", [] { pause_for(0.3); });
        self.lifeline.goodbye();
        return self.woken ? 76 : 0;
      },
      marking(mark));
  expect_all_end(job.wait(), {}, 0);
  EXPECT_TRUE(job.words().printed.empty());
}

// Parting

constexpr double kParting = 2;

TEST(Lifeline, RanksThatDoNotPartEndAsTheirTrainingDid) {
  for (const int code : {0, 138}) {
    CallMark mark;
    LifelineJob job(
        4,
        [&mark, code](ForkedRank& self) {
          self.lifeline.goodbye(code);
          mark.during(self.rank == 1 ? "MPI_Test" : "MPI_Finalize", [] { pause_for(60); });
          return 5;
        },
        marking(mark, kParting));
    expect_all_end(job.wait(), {}, code);
    EXPECT_EQ(
        the_line(job, 4),
        fmt::format(
            "the job is done and its files are written, but its ranks have not parted for 2 s; ranks 0, 2, 3 in MPI_Finalize; "
            "rank 1 in MPI_Test; exit code {} on all ranks",
            code));
  }
}

// The hub has left: its deputy speaks.
TEST(Lifeline, ThoseThatRemainPartWithoutTheHub) {
  CallMark mark;
  LifelineJob job(
      4,
      [&mark](ForkedRank& self) {
        self.lifeline.goodbye();
        if (self.rank == 0) ::_exit(0);
        mark.during("MPI_Finalize", [] { pause_for(60); });
        return 0;
      },
      marking(mark, kParting));
  expect_all_end(job.wait(), {}, 0);
  EXPECT_PRED2(contains, the_line(job, 3), "; ranks 1-3 in MPI_Finalize; exit code 0 on all ranks");
}

// Its launcher waits for it, and nobody else would say so. The second goodbye is that of work whose result rank 0 prints later.
TEST(Lifeline, ARankThatIsStoppedAtItsEndIsNamed) {
  LifelineJob job(
      4,
      [](ForkedRank& self) {
        self.lifeline.goodbye(76);
        self.lifeline.goodbye(0);
        if (self.rank == 2) ::raise(SIGSTOP);
        return 0;
      },
      [](LifelineOptions& options) { options.parting_seconds = kParting; });
  expect_all_end(job.wait({2}), {2}, 0);
  EXPECT_EQ(the_line(job, 1),
            fmt::format("the job is done and its files are written, but its ranks have not parted for 2 s; {} has not ended, and "
                        "the launcher waits for it: kill it there; exit code 0 on all ranks",
                        who(job, 2)));
}

TEST(Lifeline, NobodyIsHurriedBeforeTheLastGoodbye) {
  CallMark mark;
  std::array<int, 2> last_goodbye{};
  ASSERT_EQ(pipe(last_goodbye.data()), 0);
  LifelineJob job(
      4,
      [&](ForkedRank& self) {
        if (self.rank == 3) pause_for(kSilence + 1);  // it frees its memory, say
        close(last_goodbye[self.rank == 3 ? 0 : 1]);
        self.lifeline.goodbye();
        bool parted = false;
        mark.during("MPI_Ibarrier", [&] {
          char word = 0;
          parted = self.rank == 3 ? write(last_goodbye[1], "123", 3) == 3 : read(last_goodbye[0], &word, 1) == 1;
        });
        return self.woken || !parted ? 5 : 0;
      },
      marking(mark, kParting));
  for (const int end : last_goodbye) close(end);
  expect_all_end(job.wait(), {}, 0);
  EXPECT_TRUE(job.words().printed.empty());
}

// A failure of a rank that is done does not fail the others.
TEST(Lifeline, ADeathAfterTheLastGoodbyeFailsNobody) {
  CallMark mark;
  LifelineJob job(
      4,
      [&mark](ForkedRank& self) {
        self.lifeline.goodbye();
        mark.during("MPI_Finalize", [&] {
          self.settle();
          pause_for(60);
        });
        return 5;
      },
      marking(mark, kParting));
  job.settle();
  job.kill(2, SIGKILL);
  expect_all_end(job.wait(), {2}, 0);
  EXPECT_PRED2(contains, the_line(job, 3), "; ranks 0, 1, 3 in MPI_Finalize; exit code 0 on all ranks");
}

}  // namespace
}  // namespace trident
