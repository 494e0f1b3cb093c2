// mpirun under trident supervise: ranks are killed until the run is finished, and its log is that of a run that nobody disturbed.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <regex>
#include <thread>

#include "checkpoint/commit.h"
#include "tests/app/background_program.h"
#include "tests/app/checkpoint_runs.h"
#include "train/launch/failure_file.h"

namespace trident {
namespace {

constexpr int kRanks = 8;

// The process of a rank of the job that `supervisor` runs; 0: there is none.
pid_t process_of_rank(pid_t supervisor, int rank) {
  const std::string wanted = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
  for (const pid_t process : descendants_of(supervisor)) {
    std::ifstream environment(fmt::format("/proc/{}/environ", process));
    for (std::string variable; std::getline(environment, variable, '\0');)
      if (variable == wanted) return process;
  }
  return 0;
}

class SupervisedRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  }

  std::vector<std::string> mpirun(const std::string& run, std::size_t steps) const {
    std::vector<std::string> words{TRIDENT_SOURCE_DIR "/scripts/mpirun_local", std::to_string(kRanks), TRIDENT_BINARY, "train"};
    words.insert(words.end(), {"--config", place_ / "config.json", "--set", fmt::format("run.steps={}", steps), "--set",
                               "lr_schedule.decay_steps=80", "--set", "lr_schedule.min_lr=1e-5", "--set", "checkpoint.every=5"});
    words.insert(words.end(), {"--set", "parallel=2DP x 2PP x 2TP", "--set", "run.dir=" + (place_ / run)});
    return words;
  }
  // Has no end of its own: on no machine is it over before it was disturbed.
  std::vector<std::string> supervised(const std::string& run) const {
    std::vector<std::string> words{"supervise", "--give-up-after", "20", "--"};
    for (const std::string& word : mpirun(run, 100'000)) words.push_back(word);
    return words;
  }
  std::size_t logged(const std::string& run) const {
    std::ifstream metrics(place_ / (run + "/metrics.jsonl"));
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(metrics), {}, '\n'));
  }

  Workplace place_;
};

TEST_F(SupervisedRanks, KilledAtRandomTheRunIsTheUndisturbedOne) {
  BackgroundProgram job(supervised("killed"));
  std::mt19937 chance(20261122);
  // A kill every few steps: seconds would be too many on a fast machine, and on a busy one the job would never be past its start.
  for (int kills = 0; kills < 4; ++kills) {
    const int steps = job.steps_said() + 1 + static_cast<int>(chance() % 8);
    ASSERT_TRUE(within(150, [&] { return job.steps_said() >= steps; })) << job.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(chance() % 20));
    const pid_t victim = process_of_rank(job.process(), static_cast<int>(chance() % kRanks));
    ASSERT_TRUE(victim != 0 && kill(victim, SIGKILL) == 0) << job.err();
    ASSERT_TRUE(within(150, [&] { return job.err().find(fmt::format("restart {} ", kills + 1)) != std::string::npos; }))
        << job.err();
  }
  const int last = job.steps_said() + 3;
  ASSERT_TRUE(within(150, [&] { return job.steps_said() >= last; })) << job.err();
  kill(job.process(), SIGTERM);
  EXPECT_EQ(job.wait_to_end(150), 75) << job.err();

  const std::vector<JsonValue> killed = place_.metrics("killed");
  succeeded(run_command(mpirun("alone", killed.size())));
  EXPECT_EQ(compared(killed, kComparedKeys), compared(place_.metrics("alone"), kComparedKeys));
}

TEST_F(SupervisedRanks, TheLineOfARestartNamesTheRankAndASignalSaves) {
  BackgroundProgram job(supervised("run"));
  ASSERT_TRUE(within(150, [&] { return logged("run") >= 12 && !checkpoint_steps(place_ / "run/ckpt").empty(); })) << job.err();
  const pid_t victim = process_of_rank(job.process(), 5);
  ASSERT_NE(victim, 0);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  ASSERT_TRUE(within(150, [&] { return job.err().find("; restart 1 ") != std::string::npos; })) << job.err();
  const std::regex line(
      R"(trident supervise: .* ended after .* 137: killed by SIGKILL; rank 5 on [^ ]+ was killed or crashed in step [0-9]+; )"
      R"(newest checkpoint: step [0-9]+; restart 1 now)");
  EXPECT_TRUE(std::regex_search(job.err(), line)) << job.err();
  const auto failure = failure_from(failure_text(place_ / "run"));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 5);
  EXPECT_EQ(failure->exit_code, 76);
  EXPECT_GT(failure->step, 0) << "as last heard of, a quarter of a second ago";
  expect_parts(failure->message, {fmt::format("pid {}", victim)});

  const int later = job.steps_said() + 2;
  ASSERT_TRUE(within(150, [&] { return job.steps_said() >= later; })) << job.err();
  kill(job.process(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(job.process(), SIGTERM);  // the same request, at mpirun and at every rank
  EXPECT_EQ(job.wait_to_end(150), 75) << job.err();
  EXPECT_TRUE(descendants_of(job.process()).empty());
}

// mpirun gets SIGTERM from the kernel, which it survives by a second.
TEST_F(SupervisedRanks, NoRankOutlivesItsSupervisor) {
  BackgroundProgram job(supervised("run"));
  ASSERT_TRUE(within(150, [&] { return logged("run") >= 2; })) << job.err();
  const std::vector<pid_t> all = descendants_of(job.process());
  ASSERT_GT(all.size(), static_cast<std::size_t>(kRanks));
  kill(job.process(), SIGKILL);
  EXPECT_TRUE(within(150, [&] { return std::ranges::none_of(all, is_running); }));
}

}  // namespace
}  // namespace trident
