// trident supervise: what is started again, what is not, whom signals reach, and that nothing is left behind.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "core/clock.h"
#include "core/file_io.h"
#include "tests/app/background_program.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/app/program.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

class Supervise : public ::testing::Test {
 protected:
  // supervise -- sh -c SCRIPT, in which F is a file of this test.
  std::vector<std::string> words(const std::string& script, const std::vector<std::string>& flags = {}) const {
    return plus(plus({"supervise", "--checkpoints", folder_ / "ckpt"}, flags),
                {"--", "sh", "-c", fmt::format("F='{}'; {}", folder_ / "f", script)});
  }
  std::string noted() const { return file_exists(folder_ / "f") ? read_file(folder_ / "f") : ""; }

  TemporaryFolder folder_;
};

TEST_F(Supervise, WhatWouldEndTheSameWayIsStartedOnce) {
  for (const int code : {0, 64, 65, 70, 93, 3, 127}) {
    const ProgramOutcome outcome = run_program(words(fmt::format("printf x >> $F; exit {}", code)));
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_EQ(noted(), "x") << code;
    remove_file(folder_ / "f");
  }
}

TEST_F(Supervise, ThreeStartsWithoutACheckpointAreTheLast) {
  for (const char* end : {"kill -9 $$", "exit 76", "exit 137"}) {
    const double start = monotonic_seconds();
    const ProgramOutcome outcome = run_program(words(fmt::format("printf x >> $F; {}", end)));
    EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
    EXPECT_EQ(noted(), "xxx");
    EXPECT_TRUE(contains(outcome.err, "3 starts in a row committed no new step")) << outcome.err;
    EXPECT_GE(monotonic_seconds() - start, 3) << "1 s and 2 s between them";
    remove_file(folder_ / "f");
  }
  // A save in order is not waited for: it has its answer before the shortest wait is over.
  const double start = monotonic_seconds();
  EXPECT_EQ(run_program(words("printf x >> $F; exit 75", {"--give-up-after", "7"})).exit_code, 93);
  EXPECT_EQ(noted(), "xxxxxxx");
  EXPECT_LT(monotonic_seconds() - start, 30) << "with waits it would be 63 s";
}

TEST_F(Supervise, RestartsAreCounted) {
  const ProgramOutcome outcome = run_program(words("printf x >> $F; exit 76", {"--max-restarts", "1"}));
  EXPECT_EQ(outcome.exit_code, 76) << outcome.err;
  EXPECT_EQ(noted(), "xx");
}

TEST_F(Supervise, OutputPassesThroughAndInputIsEmpty) {
  const ProgramOutcome outcome = succeeded(run_program(words("printf 'a\\001\\r\\000b'; printf '\\033[1m' >&2; cat > $F")));
  EXPECT_EQ(outcome.out, std::string("a\001\r\0b", 5));
  EXPECT_EQ(outcome.err.rfind("\033[1mtrident supervise: ", 0), 0u) << outcome.err;
  EXPECT_EQ(noted(), "");
}

TEST_F(Supervise, WhatACommandLeavesIsWaitedFor) {
  const ProgramOutcome outcome = run_program(words("(sleep 1; printf x >> $F) & exit 64"));
  EXPECT_EQ(outcome.exit_code, 64) << outcome.err;
  EXPECT_EQ(noted(), "x");
}

// As mpirun does when a rank is killed at the wrong moment: it lives, what it started is dead, and it waits.
TEST_F(Supervise, ALauncherThatWaitsForTheDeadIsKilled) {
  BackgroundProgram alive(words("sleep 0.1 & sleep 13 & exec sleep 14"));  // has something living, and is left alone
  const ProgramOutcome outcome = run_program(words("printf x >> $F; sleep 0.1 & exec sleep 1000", {"--max-restarts", "0"}));
  EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "all that \"sh\" started is dead, and it has stood still for 10 s: it is killed"))
      << outcome.err;
  EXPECT_EQ(noted(), "x");
  EXPECT_EQ(alive.wait_to_end(150), 0) << alive.err();
}

TEST_F(Supervise, ASignalAsksOnceAndEndsIt) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    BackgroundProgram job(words("trap 'printf u >> $F; exit 75' USR1; printf r >> $F; while :; do sleep 0.05; done"));
    ASSERT_TRUE(within(150, [&] { return noted() == "r"; })) << job.err();
    kill(job.process(), signal);
    EXPECT_EQ(job.wait_to_end(150), 75) << job.err();
    EXPECT_EQ(noted(), "ru") << signal;
    remove_file(folder_ / "f");
  }
}

// timeout(1) asks its child and then its group, a terminal and its shell ask twice, and systemd asks with two signals.
TEST_F(Supervise, ARequestThatComesTwiceIsOne) {
  const struct {
    int milliseconds, then;
  } rows[] = {{2, SIGTERM}, {50, SIGTERM}, {2, SIGINT}, {2, SIGHUP}, {0, 0}};
  for (const auto [milliseconds, then] : rows) {
    BackgroundProgram job(words("trap 'sleep 0.5; printf u >> $F; exit 75' USR1; printf r >> $F; while :; do sleep 0.05; done"),
                          then == 0 ? std::vector<std::string>{"timeout", "1000"} : std::vector<std::string>{});
    ASSERT_TRUE(within(150, [&] { return noted() == "r"; })) << job.err();
    kill(job.process(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    if (then != 0) kill(job.process(), then);
    EXPECT_EQ(job.wait_to_end(150), 75) << milliseconds << ' ' << then << job.err();
    EXPECT_EQ(noted(), "ru");
    remove_file(folder_ / "f");
  }
}

// The kernel and the shell both tell it, at moments of their own; and nohup means what it says.
TEST_F(Supervise, ATerminalThatClosesNeverKills) {
  BackgroundProgram job(words("trap 'sleep 0.5; printf u >> $F; exit 75' USR1; printf r >> $F; while :; do sleep 0.05; done"));
  ASSERT_TRUE(within(150, [&] { return noted() == "r"; })) << job.err();
  kill(job.process(), SIGHUP);
  ASSERT_TRUE(within(150, [&] { return contains(job.err(), "SIGHUP: passed on as SIGUSR1"); })) << job.err();
  kill(job.process(), SIGHUP);
  EXPECT_EQ(job.wait_to_end(150), 75) << job.err();
  EXPECT_EQ(noted(), "ru");

  remove_file(folder_ / "f");
  const auto before = std::array{signal(SIGHUP, SIG_IGN), signal(SIGINT, SIG_IGN)};
  BackgroundProgram nohup(words("printf r >> $F; until [ -e $F.end ]; do sleep 0.05; done"));
  signal(SIGHUP, before[0]);
  signal(SIGINT, before[1]);
  ASSERT_TRUE(within(150, [&] { return noted() == "r"; })) << nohup.err();
  for (const int ignored : {SIGHUP, SIGINT}) kill(nohup.process(), ignored);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  write_file(folder_ / "f.end", "");
  EXPECT_EQ(nohup.wait_to_end(150), 0) << nohup.err();
  EXPECT_FALSE(contains(nohup.err(), "passed on")) << nohup.err();
}

TEST_F(Supervise, ASecondSignalIsPassedOnAndAThirdKills) {
  BackgroundProgram job(words("trap 'printf u >> $F' USR1; printf r >> $F; while :; do sleep 0.05; done"));
  ASSERT_TRUE(within(150, [&] { return noted() == "r"; })) << job.err();
  kill(job.process(), SIGTERM);
  ASSERT_TRUE(within(150, [&] { return noted() == "ru"; })) << job.err();
  EXPECT_FALSE(job.ended());
  const std::vector<pid_t> all = descendants_of(job.process());
  for (const char* after : {"ruu", "ruu"}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(job.process(), SIGTERM);
    ASSERT_TRUE(within(150, [&] { return noted() == after; })) << job.err();
  }
  EXPECT_EQ(job.wait_to_end(12), 137) << job.err();  // in 15 s the second would have killed it
  EXPECT_EQ(noted(), "ruu");
  EXPECT_TRUE(std::ranges::none_of(all, is_running));
}

// A disk that hangs holds a killed process as a tracer does that does not ask how its own has ended.
TEST_F(Supervise, WhatDoesNotEndWhenKilledIsNamed) {
  BackgroundProgram job(words("printf r >> $F; exec sleep 1000"));
  ASSERT_TRUE(within(150, [&] { return noted() == "r"; })) << job.err();
  const std::vector<pid_t> all = descendants_of(job.process());
  ASSERT_EQ(all.size(), 1u);
  if (ptrace(PTRACE_SEIZE, all[0], nullptr, nullptr) != 0) GTEST_SKIP() << "this system lets no process trace another";
  // A second signal kills 15 s later where the third one is taken for the same request.
  for (int times = 1; times <= 3; ++times) {
    kill(job.process(), SIGTERM);
    ASSERT_TRUE(within(150, [&] { return contains(job.err(), "passed on as SIGUSR1"); })) << job.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const std::string line = fmt::format("s after they were killed, processes that \"sh\" started have not ended: pid {};", all[0]);
  EXPECT_TRUE(within(150, [&] { return contains(job.err(), line); })) << job.err();
  EXPECT_FALSE(job.ended());
  while (waitpid(all[0], nullptr, 0) == all[0]) continue;  // it stopped for the first signal, and then it ended
  EXPECT_EQ(job.wait_to_end(150), 137) << job.err();
}

TEST_F(Supervise, ASignalBetweenTwoStartsLeavesTheNextOut) {
  BackgroundProgram job(words("printf x >> $F; exit 74", {"--give-up-after", "9"}));
  ASSERT_TRUE(within(150, [&] { return contains(job.err(), "restart 4 in 8 s"); })) << job.err();
  for (const int signal : {SIGUSR1, SIGTERM}) kill(job.process(), signal);  // one request, answered for the first
  EXPECT_EQ(job.wait_to_end(150), 138) << job.err();
  EXPECT_EQ(noted(), "xxxx");
  EXPECT_TRUE(contains(job.err(), "nothing was saved")) << job.err();
}

TEST_F(Supervise, ACommandDoesNotOutliveItsSupervisor) {
  BackgroundProgram job(words("printf r >> $F; while :; do sleep 0.05; done"));
  ASSERT_TRUE(within(150, [&] { return noted() == "r"; })) << job.err();
  const std::vector<pid_t> all = descendants_of(job.process());
  ASSERT_FALSE(all.empty());
  kill(job.process(), SIGKILL);
  EXPECT_TRUE(within(150, [&] { return std::ranges::none_of(all, is_running); }));
}

// Going back behind a checkpoint (a damaged one, or a user's wish) must not make a run that gets on look like one that does not.
TEST_F(Supervise, StepsThatAreCommittedAnewAreProgress) {
  for (const std::int64_t step : {60, 20, 40}) {
    Manifest manifest = test::small_manifest();
    manifest.state.updates = manifest.state.batches = step;
    manifest.generation = "first";
    const char* const where = step == 60 ? "ckpt" : "later";
    test::write_checkpoint(folder_ / fmt::format("{}/step-{:08}", where, step), manifest, test::small_files(manifest, 0));
  }
  const std::string back = fmt::format(
      "cd '{}'; printf x >> $F; case $(cat $F) in x) mv ckpt/step-00000060 ckpt/step-00000060.aside-1; mv later/step-00000020 "
      "ckpt;; "
      "xx) ;; xxx) mv later/step-00000040 ckpt;; esac; exit 76",
      folder_.path());
  const ProgramOutcome outcome = run_program(words(back, {"--give-up-after", "2"}));
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  EXPECT_EQ(noted(), "xxxxx") << "20, nothing, 40, nothing, nothing; " << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "newest checkpoint: step 20; restart 1 now")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "newest checkpoint: step 20, as before; restart 2 in 1 s")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "newest checkpoint: step 40; restart 3 now")) << outcome.err;
}

TEST_F(Supervise, ARunFolderMeansItsCheckpointsBeforeThereIsOne) {
  const Manifest manifest = test::small_manifest();
  const std::string step = fmt::format("later/step-{:08}", manifest.state.updates);
  test::write_checkpoint(folder_ / step, manifest, test::small_files(manifest, 0));
  const ProgramOutcome outcome =
      run_program(words(fmt::format("cd '{}'; mkdir ckpt; mv later ckpt/ckpt; exit 76", folder_.path()), {"--max-restarts", "0"}));
  EXPECT_EQ(outcome.exit_code, 76) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, fmt::format("newest checkpoint: step {};", manifest.state.updates))) << outcome.err;
}

TEST(SuperviseRun, WhatSavesAtItsEndAloneIsNotStartedAgainAfterACrash) {
  const Workplace place;
  const auto words = [&](const std::string& end) {
    const std::string script = fmt::format("printf x >> '{}'; {}", place / "f", end);
    return std::vector<std::string>{"supervise", "--",       "sh",    "-c", script, "train",
                                    "--config",  place / "config.json", "--set", "checkpoint.every=end"};
  };
  const ProgramOutcome crashed = run_program(words("kill -9 $$"));
  EXPECT_EQ(crashed.exit_code, 137) << crashed.err;
  EXPECT_EQ(read_file(place / "f"), "x");
  EXPECT_TRUE(contains(crashed.err, "nothing of this start is saved and another would begin again")) << crashed.err;
  remove_file(place / "f");
  EXPECT_EQ(run_program(words("exit 75")).exit_code, 93) << "started again as long as it says that it saved";
  EXPECT_EQ(read_file(place / "f"), "xxx");
}

TEST(SuperviseRun, OverwriteBeginsAnewAndKeepsTheEarlierCheckpoints) {
  const Workplace place;
  const std::vector<std::string> settings{"checkpoint.every=1", "run.steps=2"};
  ASSERT_EQ(place.train(settings).exit_code, 0);
  std::vector<std::string> words{"supervise", "--", TRIDENT_BINARY, "train", "--config", place / "config.json"};
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), {"--set", "run.overwrite=true"});
  succeeded(run_program(words));
  for (const char* name : {"/step-00000002", "/step-00000002.aside-1"})
    EXPECT_TRUE(folder_exists(place / "run/ckpt" + name)) << name;
}

TEST(SuperviseRefuses, WhatCannotGoOn) {
  const Workplace place;
  const std::vector<std::string> train{"supervise", "--", TRIDENT_BINARY, "train", "--config", place / "config.json"};
  const auto with = [&](const std::string& setting) {
    std::vector<std::string> all = train;
    all.push_back("--set=" + setting);
    return all;
  };
  expect_one_line(run_program(train), 64, {"checkpoint.every = 0", "every restart would begin again"});
  std::vector<std::string> never = with("checkpoint.every=1");
  never.insert(never.end(), {"--set", "checkpoint.resume=never"});
  expect_one_line(run_program(never), 64, {"checkpoint.resume", "never", "must be \"auto\""});
  std::vector<std::string> weights = with("checkpoint.every=1");
  weights.insert(weights.end(), {"--set", "checkpoint.content=weights"});
  expect_one_line(run_program(weights), 64, {"checkpoint.content = \"weights\"", "every restart would begin again"});
  expect_one_line(run_program({"supervise", "--", "true"}), 64, {"--checkpoints DIR"});
  expect_one_line(run_program({"supervise"}), 64, {"no command", "after --"});
  expect_one_line(run_program({"supervise", "--max-restarts", "2", "mpirun", "-np", "8", "train it"}), 64,
                  {"\"mpirun\"; write -- before the command: trident supervise --max-restarts 2 -- mpirun -np 8 'train it'"});
  expect_one_line(run_program({"supervise", "--give-up-after", "0", "--", "true"}), 64, {"--give-up-after = 0", "from 1 to 1000"});
  expect_one_line(run_program({"supervise", "--checkpoints", place / "none", "--", "/no/such/program"}), 64,
                  {"/no/such/program", "cannot be started", "No such file"});
}

// Killed again and again, whatever it is doing, the run ends as if nothing had happened.
TEST(SuperviseRun, KilledAtRandomMomentsItIsTheUndisturbedOne) {
  const Workplace place;
  std::vector<std::string> settings{"checkpoint.every=4", "parallel=2DP x 2PP x 1TP", "lr_schedule.decay_steps=70",
                                    "lr_schedule.min_lr=1e-5"};
  std::vector<std::string> words{"supervise", "--give-up-after", "20", "--", TRIDENT_BINARY, "train"};
  words.insert(words.end(), {"--config", place / "config.json"});
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), {"--set", "run.steps=100000"});  // on no machine is it over before it was killed
  BackgroundProgram job(words);
  // The run says when: after so many more steps or, every third time, while it starts. A clock would leave nothing to kill on a
  // fast machine, and nothing but starts on a busy one.
  std::mt19937 chance(20261122);
  for (int kills = 0; kills < 5; ++kills) {
    const int steps = job.steps_said() + 1 + static_cast<int>(chance() % 8);
    ASSERT_TRUE(within(150,
                       [&] { return !descendants_of(job.process()).empty() && (kills % 3 == 2 || job.steps_said() >= steps); }))
        << job.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(chance() % (kills % 3 == 2 ? 200 : 20)));
    for (const pid_t process : descendants_of(job.process())) kill(process, SIGKILL);
    ASSERT_TRUE(within(150, [&] { return contains(job.err(), fmt::format("restart {} ", kills + 1)); })) << job.err();
  }
  const int last = job.steps_said() + 3;
  ASSERT_TRUE(within(150, [&] { return job.steps_said() >= last; })) << job.err();
  for (int times = 0; times < 2; ++times) {
    kill(job.process(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(job.wait_to_end(150), 75) << job.err();
  const std::string said = job.err();
  EXPECT_TRUE(contains(said, "137: killed by SIGKILL")) << said;

  const std::vector<JsonValue> killed = place.metrics("run");
  settings.insert(settings.end(), {fmt::format("run.steps={}", killed.size()), "run.dir=" + (place / "alone")});
  succeeded(place.train(settings));
  EXPECT_EQ(compared(killed, kComparedKeys), compared(place.metrics("alone"), kComparedKeys));
}

}  // namespace
}  // namespace trident
