// The program in a run directory that was used before, and how its compute threads wait.
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "core/file_io.h"
#include "tests/app/program.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

const std::vector<std::string> kShort{"run.steps=1", "parallel.data=2"};

std::vector<std::string> with(const std::vector<std::string>& more) { return plus(more, kShort); }

TEST(RunFolder, TheSameRunAgainKeepsWhatWasThere) {
  const Workplace place;
  const std::vector<std::string> settings =
      with({"eval.every=1", "eval.steps=1", "data.valid=" + (place / "valid"), "log.trace_steps=[1,1]"});
  ASSERT_EQ(place.train(settings).exit_code, 0);
  const std::string metrics = read_file(place / "run/metrics.jsonl"), eval = read_file(place / "run/eval.jsonl");
  const ProgramOutcome again = place.train(settings);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.out.find("the files of an earlier run are in " + (place / "run/earlier-1") + " now; this run begins at step 1\n"),
            std::string::npos)
      << again.out;
  EXPECT_EQ(read_file(place / "run/earlier-1/metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(place / "run/earlier-1/eval.jsonl"), eval);
  const auto names_in = [&](const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(place / folder))
      names.push_back(entry.path().filename().string().substr(0, 10));
    std::sort(names.begin(), names.end());
    return names;
  };
  const std::vector<std::string> whole = names_in("run/earlier-1");
  EXPECT_EQ(whole, (std::vector<std::string>{"comparison", "config.res", "eval.jsonl", "events.out", "last_step.", "memory.jso",
                                             "metrics.js", "plan.json", "report.htm", "run.json", "run.log", "timing.jso",
                                             "trace"}));
  std::vector<std::string> now = names_in("run");
  std::erase(now, "earlier-1");
  EXPECT_EQ(now, whole);
  EXPECT_EQ(place.metrics().size(), 1u);
}

TEST(RunFolder, AnotherRunsFilesAreMovedOnlyWhenAskedAndOnlyByARunThatStarts) {
  const Workplace place;
  ASSERT_EQ(place.train(kShort).exit_code, 0);
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train(with({"optimizer.lr=2e-3"})), 64,
                  {"run.dir = " + (place / "run"), "another run, whose optimizer.lr is 0.001, not 0.002", "run.overwrite=true"});
  EXPECT_EQ(place.train(with({"run.overwrite=true", "data.train=" + (place / "missing")})).exit_code, 65);
  EXPECT_EQ(place.train(with({"run.overwrite=true", "batch.global=3"})).exit_code, 64);
  EXPECT_EQ(place.files(), before);
  const std::string metrics = read_file(place / "run/metrics.jsonl");
  const ProgramOutcome other = place.train(with({"run.overwrite=true", "optimizer.lr=2e-3"}));
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(read_file(place / "run/earlier-1/metrics.jsonl"), metrics);
  EXPECT_EQ(place.train(with({"optimizer.lr=2e-3", "data.mean_document=20"})).exit_code, 0) << "no number of a run depends on it";
}

TEST(RunFolder, OneLineSaysWhatBecameOfAnEarlierRun) {
  const Workplace place;
  succeeded(place.train(with({"checkpoint.every=end"})));
  const std::string out = succeeded(place.train(with({"checkpoint.every=end", "run.seed=7", "run.overwrite=true"}))).out;
  expect_parts(out, std::vector{"the files of an earlier run are in " + (place / "run/earlier-1") +
                                " now; step-00000001 is set aside as " + (place / "run/ckpt/step-00000001.aside-1") +
                                "; this run begins at step 1\n"});
}

TEST(RunFolder, APipeInTheWayDoesNotHoldTheRun) {
  const Workplace place;
  std::filesystem::create_directory(place / "run");
  ASSERT_EQ(::mkfifo((place / "run/metrics.jsonl").c_str(), 0600), 0);
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train(kShort), 74, {"run.dir = ", "metrics.jsonl is a named pipe", "remove it or choose another run.dir"});
  EXPECT_EQ(place.files(), before);
}

// As many as there are cores for the ranks, and no rank bound to cores that others compute on.
TEST(ComputeThreads, ShareTheCoresThatThereAre) {
  const Workplace place;
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  const int cores = CPU_COUNT(&mask);
  int first = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(first), &mask)) ++first;
  const auto line = [](int threads, int of, int ranks) {
    return fmt::format("\n{} thread{} per rank: {} core{} of this node for {} rank{}\n", threads, threads == 1 ? "" : "s", of,
                       of == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
  };
  const ProgramOutcome alone = place.train({"run.threads_per_rank=auto", "run.steps=1", "device=cpu", "log.verbose=true"});
  EXPECT_NE(alone.out.find(line(cores, cores, 1)), std::string::npos) << alone.out << alone.err;
  EXPECT_NE(alone.out.find(fmt::format(", {} thread", cores)), std::string::npos) << alone.out;
  EXPECT_EQ(alone.out.find("not pinned"), std::string::npos) << alone.out;
  const ProgramOutcome many = place.train({"run.threads_per_rank=99", "run.steps=1", "device=cpu", "run.overwrite=true"});
  EXPECT_NE(many.out.find(fmt::format("run.threads_per_rank = 99: 99 threads on {} core{}, which is slow; \"auto\" takes {}\n",
                                      cores, cores == 1 ? "" : "s", cores)), std::string::npos) << many.out << many.err;
  const ProgramOutcome bound =
      run_command({"taskset", "-c", std::to_string(first), TRIDENT_BINARY, "train", "--config", place / "config.json", "--set",
                   "run.threads_per_rank=auto", "--set", "run.overwrite=true", "--set", "parallel.data=2", "--set", "device=cpu",
                   "--set", "log.verbose=true"});
  EXPECT_NE(bound.out.find(line(1, 1, 2)), std::string::npos) << bound.out << bound.err;
  EXPECT_NE(bound.out.find("\nnot pinned: 2 threads on 1 core\n"), std::string::npos) << bound.out;
}

// The OpenMP library says how it waits, each time the program is loaded.
TEST(WaitingThreads, SleepUnlessTheUserSaysOtherwise) {
  const Workplace place;
  const auto loaded = [&](const std::string& environment) {
    const std::string err = place.train({"model.preset=xyzzy", "model.model_type=null"}, "OMP_DISPLAY_ENV=true " + environment).err;
    std::vector<std::string> policies;
    for (std::size_t at = err.find("OMP_WAIT_POLICY = '"); at != err.npos; at = err.find("OMP_WAIT_POLICY = '", at + 1))
      policies.push_back(err.substr(at + 19, err.find('\'', at + 19) - at - 19));
    return policies;
  };
  EXPECT_EQ(loaded(""), (std::vector<std::string>{"PASSIVE", "PASSIVE"})) << "as libgomp shows what is not set, and once more";
  EXPECT_EQ(loaded("OMP_WAIT_POLICY=active"), std::vector<std::string>{"ACTIVE"});
  EXPECT_EQ(loaded("GOMP_SPINCOUNT=1000").size(), 1u);
  for (const char* computing : {"eval", "generate", "convert", "bench", "study"})
    EXPECT_NE(run_program({computing, "--help"}, "OMP_DISPLAY_ENV=true").err.find("OMP_WAIT_POLICY"),
              run_program({computing, "--help"}, "OMP_DISPLAY_ENV=true").err.rfind("OMP_WAIT_POLICY"))
        << computing;
  EXPECT_EQ(run_program({"help"}, "OMP_DISPLAY_ENV=true").err.find("WAIT_POLICY"),
            run_program({"help"}, "OMP_DISPLAY_ENV=true").err.rfind("WAIT_POLICY"));
}

// Names, arguments and process stay what they were: a program that is stopped by the id it was started with, and known to ps.
TEST(WaitingThreads, TheProcessIsTheSame) {
  const Workplace place;
  const std::string script = fmt::format(
      "(exec -a some-name '{}' train --config '{}' --set 'run.steps=1000000') >/dev/null 2>&1 & p=$!\n"
      "until [ -s '{}' ]; do sleep 0.05; done\n"
      "tr '\\0' ' ' </proc/$p/cmdline; cat /proc/$p/comm; kill -TERM $p; wait $p; echo $?",
      TRIDENT_BINARY, place / "config.json", place / "run/metrics.jsonl");
  const ProgramOutcome outcome = run_command({"bash", "-c", script});
  EXPECT_EQ(outcome.out, fmt::format("some-name train --config {} --set run.steps=1000000 trident\n143\n", place / "config.json"))
      << outcome.err;
}

}  // namespace
}  // namespace trident
