// A job one of whose ranks does not get going: before MPI_Init, where no lifeline watches yet (train/launch/start_watch.h).
#include <csignal>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "tests/mpi/launched_job.h"
#include "tests/support/error_text.h"
#include "tests/support/text_counts.h"

namespace trident {
namespace {

// Rank 1 is stopped before it becomes the program.
const std::vector<std::string> kHeld{"sh", "-c", "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then kill -STOP $$; fi; exec \"$@\"", "sh"};
const std::vector<std::string> kSettings{"run.steps=2", "parallel=2DP"};
const std::string kLine = "the job has not begun: for ";

class LateRank : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  }
  Workplace place_;
};

TEST_F(LateRank, IsSaidAfterTenSecondsAndMayStillCome) {
  const double start = monotonic_seconds();
  LaunchedJob job(place_, "job", 2, kSettings, kHeld);
  ASSERT_TRUE(job.wait_for_ranks()) << job.said();
  ASSERT_TRUE(job.wait_for_text(kLine, 60)) << job.said();
  EXPECT_GE(monotonic_seconds() - start, 10);
  kill(job.rank(1), SIGCONT);
  EXPECT_EQ(job.wait_to_end(150), 0) << job.said();
  const std::string said = job.said();
  const std::regex line(R"(\[rank 0\] warning: )" + kLine +
                        "[1-6][0-9] s this rank joins the other ranks; see whether a rank is late "
                        "or its disk hangs, or a stranger");
  EXPECT_TRUE(std::regex_search(said, line)) << said;
  EXPECT_EQ(occurrences(said, kLine), 1u) << said;
  EXPECT_EQ(place_.metrics("job").size(), 2u);
}

// Five minutes: with -C Full.
class FullLateRank : public LateRank {};
TEST_F(FullLateRank, ThatDoesNotComeEndsTheJobWith76) {
  const double start = monotonic_seconds();
  LaunchedJob job(place_, "job", 2, kSettings, kHeld);
  ASSERT_TRUE(job.wait_for_ranks()) << job.said();
  ASSERT_TRUE(job.wait_for_text(kLine + "300 s this rank joins the other ranks", 330)) << job.said();
  EXPECT_GE(monotonic_seconds() - start, 300);
  kill(job.rank(1), SIGCONT);  // a launcher's SIGTERM waits for that
  EXPECT_EQ(job.wait_to_end(150), 76) << job.said();
  const std::string said = job.said();
  EXPECT_EQ(occurrences(said, kLine), 6u) << "after 10 s, 70, 130, 190, 250, and at the end: " << said;
  EXPECT_EQ(job.survivors(), "");
}

}  // namespace
}  // namespace trident
