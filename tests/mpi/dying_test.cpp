// Ranks of a running job are killed, stopped, and fail: the others end soon, one line says who and where, and nothing stays behind.
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <system_error>
#include <thread>

#include "core/clock.h"
#include "tests/mpi/launched_job.h"

namespace trident {
namespace {

constexpr double kSecondsToEnd = 12;

constexpr std::chrono::milliseconds kHeartbeats{500};  // until the others know that a rank trains

const std::vector<std::string> kEndless = {"run.steps=1000000", "log.every=1"};

struct Victim {
  int ranks;
  const char* layout;
  int rank;
  int steps;  // logged before it is disturbed
};

std::set<std::string> listing(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

int count_lines(const std::string& text, const std::regex& pattern) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += std::regex_search(line, pattern) ? 1 : 0;
  return count;
}

class Dying : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
    shared_before_ = listing("/dev/shm");
  }

  std::unique_ptr<LaunchedJob> start(const Victim& v, const std::vector<std::string>& more = {}) {
    std::vector<std::string> settings = kEndless;
    settings.push_back(std::string("parallel=") + v.layout);
    settings.insert(settings.end(), more.begin(), more.end());
    return std::make_unique<LaunchedJob>(place_, "job" + std::to_string(started_++), v.ranks, settings);
  }

  // Disturbs one rank in each of the jobs, all of them at once, and looks at how they end.
  void disturb(const std::vector<Victim>& victims, int signal, const std::string& verb) {
    std::vector<std::unique_ptr<LaunchedJob>> jobs;
    for (std::size_t i = 0; i < victims.size(); ++i) jobs.push_back(start(victims[i]));
    std::mt19937 moments(20261121);
    std::vector<double> disturbed(victims.size());
    for (std::size_t i = 0; i < victims.size(); ++i) {
      ASSERT_TRUE(jobs[i]->wait_for_steps(victims[i].steps)) << jobs[i]->said();
      std::this_thread::sleep_for(kHeartbeats + std::chrono::microseconds(moments() % 50000));  // anywhere in a step
      ASSERT_EQ(kill(jobs[i]->rank(victims[i].rank), signal), 0);
      disturbed[i] = monotonic_seconds();
    }
    for (std::size_t i = 0; i < victims.size(); ++i) {
      SCOPED_TRACE(
          fmt::format("rank {} of {} ({}) after {} steps", victims[i].rank, victims[i].ranks, victims[i].layout, victims[i].steps));
      const int code = jobs[i]->wait_to_end(disturbed[i] + kSecondsToEnd - monotonic_seconds());
      EXPECT_NE(code, -1) << "still there after " << kSecondsToEnd << " s\n" << jobs[i]->said();
      EXPECT_NE(code, 0);
      expect_one_line(jobs[i]->said(), victims[i].rank, jobs[i]->rank(victims[i].rank), verb);
      EXPECT_EQ(jobs[i]->survivors(), "");
    }
  }

  static void expect_one_line(const std::string& said, int rank, pid_t process, const std::string& verb) {
    // Who (rank, host, pid), what, which phase and step, which collective and its number.
    const std::regex line(fmt::format(
        R"(rank {} \(host [^ ,]+, pid {}\) {}.* in training, step [0-9]+, )"
        R"(.*(all_reduce|all_gather|reduce_scatter|send|recv|broadcast|barrier)[^,;]* #[0-9]+ over )",
        rank, process, verb));
    EXPECT_EQ(count_lines(said, line), 1) << said;
    EXPECT_EQ(count_lines(said, std::regex("exit code 76 on all ranks")), 1) << said;
  }

  bool is_over_without_its_trace(int processes, int steps);

  void TearDown() override {
    for (const std::string& name : listing("/dev/shm")) {
      if (name.starts_with("vader_segment.") || name.starts_with("sm_segment.")) continue;  // Open MPI's own, of 4 and of 5
      EXPECT_TRUE(shared_before_.contains(name)) << "/dev/shm/" << name << " was left behind";
    }
  }

  Workplace place_;
  int started_ = 0;  // jobs; each has a run directory of its own
  std::set<std::string> shared_before_;
};

TEST_F(Dying, KilledInPairs) {
  for (const int steps : {1, 3}) {
    disturb({{2, "2DP x 1PP x 1TP", 1, steps},
             {2, "1DP x 2PP x 1TP", 0, steps},
             {2, "1DP x 1PP x 2TP", 1, steps},
             {2, "1DP x 2PP x 1TP", 1, steps + 1}},
            SIGKILL, "was killed");
    if (HasFailure()) return;
  }
}

TEST_F(Dying, KilledInFours) {
  for (const int steps : {1, 2}) {
    disturb({{4, "2DP x 2PP x 1TP", 3, steps},
             {4, "1DP x 2PP x 2TP", 0, steps + 1},
             {4, "2DP x 1PP x 2TP", 2, steps},
             {4, "4DP x 1PP x 1TP", 1, steps}},
            SIGKILL, "was killed");
    if (HasFailure()) return;
  }
}

TEST_F(Dying, KilledInEights) {
  for (const int rank : {0, 1, 5, 7}) {
    disturb({{8, "2DP x 2PP x 2TP", rank, 1 + rank % 3}}, SIGKILL, "was killed");
    if (HasFailure()) return;
  }
}

TEST_F(Dying, StoppedInPairs) {
  disturb({{2, "2DP x 1PP x 1TP", 1, 1},
           {2, "1DP x 2PP x 1TP", 0, 2},
           {2, "1DP x 1PP x 2TP", 1, 1},
           {2, "1DP x 2PP x 1TP", 1, 3},
           {2, "2DP x 1PP x 1TP", 0, 2}},
          SIGSTOP, "stopped|was stopped");
}

TEST_F(Dying, StoppedInFours) {
  disturb({{4, "2DP x 2PP x 1TP", 3, 1},
           {4, "1DP x 2PP x 2TP", 0, 2},
           {4, "2DP x 1PP x 2TP", 2, 1},
           {4, "4DP x 1PP x 1TP", 1, 3},
           {4, "1DP x 4PP x 1TP", 2, 1}},
          SIGSTOP, "stopped|was stopped");
}

// mpirun 4.1.4 itself may never end where a rank dies while it introduces itself to mpirun, although every rank has ended: another
// start shows what becomes of one that does not hit that moment. (`trident supervise` ends a launcher that waits for the dead.)
TEST_F(Dying, KilledWhileStarting) {
  constexpr int kMostTries = 4;
  for (const int rank : {0, 2}) {
    for (int tries = 1;; ++tries) {
      const auto job = start({4, "2DP x 2PP x 1TP", rank, 0});
      ASSERT_TRUE(job->wait_for_ranks()) << job->said();
      const double killed = monotonic_seconds();
      kill(job->rank(rank), SIGKILL);
      const int code = job->wait_to_end(killed + kSecondsToEnd - monotonic_seconds());
      EXPECT_EQ(job->survivors(), "");
      if (code < 0 && tries < kMostTries && job->said().find("PMIX ERROR: UNREACHABLE") != std::string::npos) continue;
      EXPECT_GT(code, 0) << job->said();
      break;
    }
  }
}

// Rank 0 cannot write its metrics and was told to end then: an error of one rank, not of all.
TEST_F(Dying, ByAnException) {
  const auto job = start({4, "2DP x 2PP x 1TP", 0, 0}, {"log.on_error=stop"});
  ASSERT_TRUE(job->wait_for_steps(1)) << job->said();
  const rlimit full{1, 1};
  ASSERT_EQ(::prlimit(job->rank(0), RLIMIT_FSIZE, &full, nullptr), 0);
  EXPECT_EQ(job->wait_to_end(150), 74) << job->said();
  const std::regex line(
      R"(rank 0 \(host [^ ,]+, pid [0-9]+\) failed: .*(metrics\.jsonl|timing\.jsonl|run\.log|events\.out\.[^ ]*): cannot be written: .*; in training, step [0-9]+,.*exit code 74 on all ranks)");
  EXPECT_EQ(count_lines(job->said(), line), 1) << job->said();
  EXPECT_EQ(job->survivors(), "");
}

// The trace cannot be renamed into place when all is over. Under mpirun one rank is a process of threads.
TEST_F(Dying, AReportThatFailsDoesNotFailTheRun) {
  for (const int processes : {4, 1})
    for (int steps = 8; !is_over_without_its_trace(processes, steps); steps *= 8) ASSERT_LT(steps, 10'000);
}

// False where the run was over before anything was in its way: a longer one is to be tried.
bool Dying::is_over_without_its_trace(int processes, int steps) {
  const std::string run = fmt::format("job{}-{}", processes, steps);
  LaunchedJob job(place_, run, processes, {fmt::format("run.steps={}", steps), "log.every=1", "log.on_error=stop",
                                           "log.trace_steps=[2,3]", "parallel=2DP x 2PP x 1TP"});
  job.wait_for_steps(2);
  std::error_code in_place;
  std::filesystem::create_directories((place_ / run) + "/trace/steps_2-3.json/in_the_way", in_place);
  if (job.steps_logged() == steps) return false;
  EXPECT_EQ(job.wait_to_end(150), 0) << job.said();
  const std::regex line("warning: .*training is over and its metrics are written, but not all of it is reported: .*steps_2-3.json");
  EXPECT_EQ(count_lines(job.said(), line), 1) << job.said();
  EXPECT_EQ(job.steps_logged(), steps);
  return true;
}

class Stopping : public Dying, public ::testing::WithParamInterface<int> {};

// Whoever gets the signal, all end at the same step boundary with 128 + its number.
TEST_P(Stopping, AtAStepBoundary) {
  const int signal = GetParam();
  const auto job = start({4, "2DP x 2PP x 1TP", 0, 0});
  ASSERT_TRUE(job->wait_for_steps(2)) << job->said();
  if (signal == SIGUSR1) kill(job->launcher(), signal);  // mpirun passes it on to all ranks
  else kill(job->rank(3), signal);                       // one rank is enough
  EXPECT_EQ(job->wait_to_end(kSecondsToEnd), 128 + signal) << job->said();
  const std::string name = signal == SIGUSR1 ? "SIGUSR1" : signal == SIGTERM ? "SIGTERM" : "SIGINT";
  EXPECT_EQ(count_lines(job->said(), std::regex("^trident: stopped by " + name)), 1) << job->said();
  EXPECT_EQ(count_lines(job->said(), std::regex("^trained .* updates")), 1) << "the closing lines come all the same\n"
                                                                            << job->said();
  EXPECT_EQ(job->survivors(), "");
}

INSTANTIATE_TEST_SUITE_P(Signals, Stopping, ::testing::Values(SIGUSR1, SIGTERM, SIGINT),
                         [](const auto& info) { return "Signal" + std::to_string(info.param); });

}  // namespace
}  // namespace trident
