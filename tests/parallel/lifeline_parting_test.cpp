// Ranks as processes that stand in calls of the message library, and ranks that are done and do not part.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>

#include "core/check.h"
#include "tests/parallel/lifeline_ranks.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

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
        if (self.rank != 0) mark.during("MPI_Finalize", [] { pause_for(60); });
        return 0;
      },
      marking(mark, kParting));
  expect_all_end(job.wait(), {}, 0);
  EXPECT_PRED2(contains, the_line(job, 3), "; ranks 1-3 in MPI_Finalize; exit code 0 on all ranks");
}

TEST(Lifeline, NobodyIsHurriedBeforeTheLastGoodbye) {
  CallMark mark;
  std::array<int, 2> last_goodbye{};
  ASSERT_EQ(pipe(last_goodbye.data()), 0);
  LifelineJob job(
      4,
      [&](ForkedRank& self) {
        if (self.rank == 3) pause_for(kSilence + 1);  // it frees its memory, say
        self.lifeline.goodbye();
        mark.during("MPI_Ibarrier", [&] {
          char word = 0;
          if (self.rank == 3) EXPECT_EQ(write(last_goodbye[1], "123", 3), 3);
          else EXPECT_EQ(read(last_goodbye[0], &word, 1), 1);
        });
        return self.woken ? 5 : 0;
      },
      marking(mark, kParting));
  expect_all_end(job.wait(), {}, 0);
  EXPECT_TRUE(job.words().printed.empty());
  for (const int end : last_goodbye) close(end);
}

// What befalls a rank that is done does not fail the others.
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
