// Tests what the program says, at the end of a run, of what it predicted: the closing lines, comparison.json, plan.json and
// report.html.
#include <chrono>
#include <cmath>
#include <csignal>
#include <set>
#include <thread>

#include "core/file_io.h"
#include "planner/price/cpu_rates.h"
#include "planner/price/kept_profile.h"
#include "tests/app/background_program.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/app/json_answer.h"
#include "tests/app/program.h"
#include "tests/support/sanitized.h"
#include "tests/support/text_counts.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

// A profile of processors at which every operation takes a nanosecond a byte, times `factor`: of all operations that trident plan
// names.
void write_profile(const Workplace& place, const std::string& name, const std::vector<std::string>& settings, double factor) {
  std::vector<std::string> arguments{"plan", "--config", place / "config.json", "--program", "--json"};
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  const ProgramOutcome planned = run_program(arguments);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const JsonValue plan = parse_json(planned.out, "plan");
  std::set<std::string> names;
  for (const JsonValue& stage : plan.find("stages")->items()) {
    for (const JsonValue& pass : stage.find("passes")->items())
      for (const JsonValue& call : pass.items())
        if (const JsonValue* operation = call.find("operation")) names.insert(operation->as_string());
  }
  const auto table = [](const std::string& head, const std::string& axes, double microseconds) {
    return fmt::format(R"({{{}, {}: [{:g}], "source": "test"}})", head, axes, microseconds);
  };
  std::vector<std::string> products, attention, operations, collectives;
  for (const auto& [a, b] : {std::pair{"false", "true"}, {"false", "false"}, {"true", "false"}})
    products.push_back(table(fmt::format(R"("threads": 1, "dtype": "f32", "transpose_a": {}, "transpose_b": {},
                                             "accumulates": false)", a, b),
                             R"("m": [100], "n": [100], "k": [100], "us")", 100 * factor));
  for (const std::string operation : {"attention_forward", "attention_backward"})
    attention.push_back(table(fmt::format(R"("threads": 1, "dtype": "f32", "operation": "{}")", operation),
                              R"("length": [16], "head_dim": [8], "us_per_head")", factor));
  for (const std::string& operation : names)
    operations.push_back(
        table(fmt::format(R"("threads": 1, "dtype": "f32", "operation": "{}")", operation), R"("bytes": [1000], "us")", factor));
  for (const std::string operation : {"all_reduce", "reduce_scatter", "all_gather", "message"})
    collectives.push_back(table(fmt::format(R"("operation": "{}", "dtype": "f32", "ranks": 2, "world": 8)", operation),
                                R"("bytes": [1000], "us")", 2));
  const auto list = [](const std::vector<std::string>& items) {
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ",\n") + item;
    return "[" + text + "]";
  };
  write_file(place / name, fmt::format(R"({{"name": "{}", "processor": "a processor", "cores": 2,
"constants": {{"step_us": 10, "call_us": 0.5, "collective_us": 1, "skew_root_us": 0, "shared_collective_us": 2, "shared_root_us": 0,
"source": "test"}},
"memory": [{{"dtype": "f32", "process_bytes": 40000000, "rank_bytes": 1000000, "source": "test"}}],
"products": {}, "attention": {}, "operations": {}, "collectives": {}}})",
                                       name, list(products), list(attention), list(operations), list(collectives)));
}

JsonValue comparison(const Workplace& place) { return parse_json(read_file(place / "run/comparison.json"), "comparison.json"); }

const std::vector<std::string> kEight{"parallel=2DP x 2PP x 2TP", "run.steps=3", "lr_schedule.type=constant"};

TEST(Prediction, StandsBesideWhatWasMeasured) {
  const Workplace place;
  write_profile(place, "profile.json", kEight, 1);
  const ProgramOutcome outcome = place.train(plus(kEight, {"run.hardware_profile=" + (place / "profile.json")}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  // Eight ranks are threads of this process: one of them says it, once. Whether they share cores is the machine's affair.
  const std::string line = "predicted beside measured, by the profile profile.json of a processor: see comparison.json (";
  EXPECT_EQ(occurrences(outcome.out, line), 1u) << outcome.out;
  EXPECT_EQ(outcome.out.find("to the byte"), std::string::npos) << "the table is in the files\n" << outcome.out;
  EXPECT_NE(outcome.out.find("bytes sent over each axis and memory held: exactly as predicted"), std::string::npos) << outcome.out;
  const JsonValue c = comparison(place), plan = parse_json(read_file(place / "run/plan.json"), "plan.json");
  EXPECT_EQ(number(*c.find("arena_bytes"), "predicted"), number(*c.find("arena_bytes"), "measured"));
  EXPECT_EQ(number(*c.find("arena_bytes"), "measured"), number(place.metrics().back(), "peak_bytes"));
  double predicted = 0, measured = 0;
  for (const JsonValue& part : c.find("parts")->items())
    predicted += number(part, "predicted"), measured += number(part, "measured");
  EXPECT_NEAR(predicted, number(*c.find("step_seconds"), "predicted"), 1e-9);
  EXPECT_NEAR(measured, number(*c.find("step_seconds"), "measured"), 1e-9);
  EXPECT_GT(measured, 0);
  EXPECT_EQ(number(c, "steps"), 2) << "without the first one";
  EXPECT_EQ(number(c, "last_step"), 3);
  EXPECT_EQ(c.find("clock")->as_string(), number(c, "ranks_at_once") < 8 ? "processor" : "wall");
  const JsonValue& step = *plan.find("predicted_step");
  EXPECT_EQ(to_json_text(step), to_json_text(*c.find("predicted_step"))) << "known before the first step";
  double parts = 0;
  for (const JsonMember& part : step.find("parts")->members()) parts += part.value.as_number();
  EXPECT_NEAR(parts, number(step, "seconds"), 1e-12);
  double arenas = 0;
  const JsonValue memory = parse_json(read_file(place / "run/memory.json"), "memory.json");
  for (const JsonValue& rank : memory.find("ranks")->items())
    arenas += number(rank, "bytes");
  EXPECT_EQ(number(*c.find("resident_bytes"), "predicted"), arenas + 40000000 + 8 * 1000000);
  EXPECT_GT(number(*c.find("resident_bytes"), "measured"), arenas / 2) << "while all eight ranks live";
}

TEST(Prediction, WhatIsOffIsNamed) {
  const Workplace place;
  write_profile(place, "profile.json", kEight, 1e4);
  const auto trained = [&] {
    return succeeded(place.train(
        plus(kEight, {"run.steps=7", "run.overwrite=true", "run.hardware_profile=" + (place / "profile.json")})));
  };
  const ProgramOutcome other = trained();
  expect_parts(other.out, {"the profile is of another processor; times are not judged"});
  EXPECT_EQ(other.out.find("more than 10 % off: compute"), std::string::npos) << other.out;
  write_file(place / "profile.json", replaced(read_file(place / "profile.json"), "a processor", processor_name()));
  const ProgramOutcome outcome = trained();
  EXPECT_NE(outcome.out.find("more than 10 % off: compute"), std::string::npos) << outcome.out;
  const JsonValue c = comparison(place);
  ASSERT_FALSE(c.find("off")->items().empty());
  EXPECT_EQ(c.find("off")->items()[0].as_string().substr(0, 7), "compute");
}

TEST(Prediction, WithoutAProfileTheRunSaysSoAndNothingElseChanges) {
  const Workplace place;
  write_profile(place, "lacking.json", {}, 1);
  const ProgramOutcome outcome =
      place.train({"run.hardware_profile=" + (place / "lacking.json"), "run.overwrite=true", "precision.compute=bf16"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::size_t noted = outcome.out.find("the time of a step is not predicted: "), first_step = outcome.out.find("] step ");
  EXPECT_LT(noted, first_step) << "said at the start: " << outcome.out;
  EXPECT_NE(outcome.out.find("predicted beside measured, without the time of a step: "), std::string::npos) << outcome.out;
  const JsonValue c = comparison(place);
  EXPECT_NE(c.find("not_predicted")->as_string().find("bf16"), std::string::npos) << to_json_text(c);
  EXPECT_EQ(number(*c.find("arena_bytes"), "predicted"), number(*c.find("arena_bytes"), "measured"));
  EXPECT_EQ(parse_json(read_file(place / "run/plan.json"), "plan.json").find("predicted_step"), nullptr);
}

// A profile that is named goes before it, it before the program's own, and "none" leaves it out.
TEST(Prediction, TheProfileKeptOfThisMachineIsTaken) {
  const Workplace place;
  ::setenv("XDG_CACHE_HOME", (place / "cache").c_str(), 1);
  const std::string kept = kept_profile_path(cpu_machine_facts(1).core_share.at_once());
  EXPECT_TRUE(kept.starts_with(place / "cache/trident/")) << kept;
  write_profile(place, "kept", {}, 1);
  write_profile(place, "named.json", {}, 1);
  create_folder_of(kept);
  write_file(kept, replaced(read_file(place / "kept"), "\"cores\": 2", "\"date\": \"2026-01-31\", \"cores\": 2"));
  const auto said = [&](const std::string& profile) {
    const ProgramOutcome outcome = place.train({"run.overwrite=true", "run.hardware_profile=" + profile});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_NE(said("null").find("predicted beside measured, by the profile kept of a processor, measured 2026-01-31: "),
            std::string::npos);
  EXPECT_NE(said(place / "named.json").find("predicted beside measured, by the profile named.json of a processor: "),
            std::string::npos);
  EXPECT_EQ(said("none").find(" of a processor"), std::string::npos);
  ::unsetenv("XDG_CACHE_HOME");
}

// Before anything is made or trained, as threads and as processes.
TEST(Prediction, AFileThatIsNoProfileIsRefusedAtTheStart) {
  const Workplace place;
  write_file(place / "bad.json", R"({"name": 3})");
  for (const std::string profile : {"none.json", "bad.json"}) {
    expect_one_line(place.train({"run.hardware_profile=" + (place / profile)}), 64,
                    {"run.hardware_profile cannot be used: ", profile, "; name a file of trident bench --calibrate"});
    EXPECT_FALSE(file_exists(place / "run"));
  }
}

// A run that is stopped compares the steps that it made, and leaves whole files; one without a second step judges no times.
TEST(Prediction, AStoppedRunComparesWhatItMade) {
  const Workplace place;
  write_profile(place, "profile.json", kEight, 1);
  for (const int signal : {SIGTERM, SIGINT}) {
    for (const std::string when : {"before a step", "in the first step", "later"}) {
      if (signal == SIGINT && when != "later") continue;  // it says no more than the other one
      SCOPED_TRACE(fmt::format("signal {}, {}", signal, when));
      const std::string run = place / fmt::format("run {} {}", signal, when);
      std::vector<std::string> words{"train", "--config", place / "config.json"};
      for (const std::string& setting :
           plus(kEight, {"run.steps=100000", "log.report=true", "run.dir=" + run,
                         "run.hardware_profile=" + (place / "profile.json")}))
        words.insert(words.end(), {"--set", setting});
      if (when == "in the first step") words.insert(words.end(), {"--set", "batch.global=2048"});  // of seconds
      BackgroundProgram job(words);
      const bool begun =
          within(100, [&] { return when == "later" ? job.steps_said() >= 3 : file_exists(run + "/plan.json"); });
      ASSERT_TRUE(begun) << job.err();
      if (when == "in the first step") std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      kill(job.process(), signal);
      EXPECT_EQ(job.wait_to_end(150), 128 + signal) << job.err();
      EXPECT_EQ(occurrences(job.err(), "\n"), 1u) << job.err();
      if (when != "later" && job.steps_said() == 0) {  // the signal came before any step: on a slow machine of both
        EXPECT_FALSE(file_exists(run + "/comparison.json"));
        EXPECT_EQ(occurrences(job.out(), "beside measured"), 0u);
        continue;
      }
      EXPECT_EQ(occurrences(job.out(), "beside measured"), 1u) << job.out();
      const JsonValue c = parse_json(read_file(run + "/comparison.json"), "comparison.json");
      const bool alone = number(c, "last_step") == 1;
      if (when == "in the first step") {
        EXPECT_TRUE(alone);
      }
      EXPECT_EQ(c.find("first_step_alone")->as_bool(), alone);
      EXPECT_EQ(number(c, "steps"), alone ? 1 : number(c, "last_step") - 1);
      EXPECT_EQ(number(*c.find("arena_bytes"), "predicted"), number(*c.find("arena_bytes"), "measured"));
      if (alone) {
        EXPECT_EQ(occurrences(job.out(), "more than 10 % off: compute"), 0u) << job.out();
      }
      EXPECT_NE(read_file(run + "/report.html").find("Predicted beside measured"), std::string::npos);
      for (const std::string& file : place.files()) EXPECT_EQ(file.find(".tmp."), std::string::npos) << file;
    }
  }
}

// Processes share a node's cores as threads do: the shipped profile, of another number of them, is not for this node.
TEST(Prediction, ProcessesCompareTheirNodesCoresWithTheProfile) {
  if (test::kSanitized) GTEST_SKIP() << "Open MPI does not run cleanly under sanitizers";
  if (run_command({"taskset", "-c", "0", "true"}).exit_code != 0) GTEST_SKIP() << "no taskset, or no core 0";
  if (shipped_cpu_rates().cores == 1) GTEST_SKIP() << "the shipped profile is of one core";
  const Workplace place;
  const ProgramOutcome outcome =
      run_command({"taskset", "-c", "0", TRIDENT_SOURCE_DIR "/scripts/mpirun_local", "2", TRIDENT_BINARY, "train", "--config",
                   place / "config.json", "--set", "parallel.data=2", "--set", "run.steps=1", "--set",
                   "run.dir=" + (place / "run")});
  if (outcome.exit_code == 77) GTEST_SKIP() << outcome.out;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonValue compared = comparison(place);
  ASSERT_NE(compared.find("not_predicted"), nullptr) << "the profile of other cores was taken";
  const std::string why = compared.find("not_predicted")->as_string();
  EXPECT_EQ(why, "no profile of this machine with 1 core; trident bench --calibrate makes one");
  const ProgramOutcome refused = run_command(
      {TRIDENT_SOURCE_DIR "/scripts/mpirun_local", "2", TRIDENT_BINARY, "train", "--config", place / "config.json", "--set",
       "parallel.data=2", "--set", "run.dir=" + (place / "other"), "--set", "run.hardware_profile=" + (place / "none.json")});
  EXPECT_EQ(refused.exit_code, 64) << refused.err;
  const std::string said = "run.hardware_profile cannot be used: ";
  const std::size_t first = refused.err.find(said);
  ASSERT_NE(first, std::string::npos) << refused.err;
  EXPECT_EQ(refused.err.find(said, first + 1), std::string::npos) << "once for all processes: " << refused.err;
  EXPECT_FALSE(file_exists(place / "other"));
}

// Losses do not depend on whether anything is predicted; what the run leaves beside them is whole after a resumption, too.
TEST(Prediction, ARunThatGoesOnComparesItsOwnSteps) {
  const Workplace place;
  write_profile(place, "profile.json", kEight, 1);
  const std::string profile = "run.hardware_profile=" + (place / "profile.json");
  ASSERT_EQ(place.train(plus(kEight, {"checkpoint.every=3", "log.report=true"})).exit_code, 0);
  ASSERT_EQ(place.train(plus(kEight, {"checkpoint.every=3", "run.steps=7", "log.report=true", profile})).exit_code, 0);
  const JsonValue c = comparison(place);
  EXPECT_EQ(number(c, "last_step"), 7);
  EXPECT_EQ(number(c, "steps"), 3);  // of 4
  const std::string report = read_file(place / "run/report.html");
  for (const std::string part : {"Predicted beside measured", "Gradient norm", "tokens/s", "Measured: step 7",
                                 "Simulated by", "Arena of the first rank of each pipeline stage", "optimizer", "stage 1"})
    EXPECT_NE(report.find(part), std::string::npos) << part;
  for (const std::string fetching : {" src=", " href=", "@import", "url("})
    EXPECT_EQ(report.find(fetching), std::string::npos) << fetching;
  const std::vector<JsonValue> metrics = place.metrics();
  const std::string before = read_file(place / "run/comparison.json");
  const ProgramOutcome over = place.train(plus(kEight, {"checkpoint.every=3", "run.steps=7", "log.report=true", profile}));
  ASSERT_EQ(over.exit_code, 0) << over.err;
  EXPECT_EQ(over.out.find("predicted beside"), std::string::npos) << "nothing was trained, nothing is compared";
  EXPECT_EQ(read_file(place / "run/comparison.json"), before);

  const Workplace other;
  ASSERT_EQ(other.train(plus(kEight, {"run.steps=7"})).exit_code, 0);
  const std::vector<JsonValue> plain = other.metrics();
  ASSERT_EQ(metrics.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(number(metrics[i], "loss"), number(plain[i], "loss"));
}

}  // namespace
}  // namespace trident
