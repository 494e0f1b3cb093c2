// Tests what a run leaves to look at, through the real program: TensorBoard events, a trace, times, memory, and the closing lines.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "core/file_io.h"
#include "tests/app/json_answer.h"
#include "tests/app/program.h"
#include "tests/train/event_file.h"
#include "tests/train/trace_file.h"

namespace trident {
namespace {

using testing::read_event_file;
using testing::ReadEvent;

const std::vector<std::string> kRun{"parallel=2DP x 2PP x 2TP", "run.steps=4", "log.every=2", "eval.every=2", "eval.steps=1",
                                    "debug.no_alloc=true"};

std::vector<std::string> run_with(const std::vector<std::string>& more) { return plus(more, kRun); }

// The ranks' sums of the targets that count are the slowest rank's, and no layer's.
TEST(RunLogs, WithoutTensorParallelismNobodyWaitsForIt) {
  const Workplace place;
  succeeded(place.train({"parallel=2DP", "run.steps=4", "data.eod_mask_loss=true", "data.eod=50256"}));
  for (const JsonValue& t : place.records("run/timing.jsonl")) {
    const double statistics = number(*t.find("waited_for_ms"), "norm");
    EXPECT_NEAR(number(*t.find("waited_for_ms"), "tp"), 0, 1e-9);
    EXPECT_LE(number(*t.find("waited_ms"), "data"), statistics + 1e-9);
  }
}

TEST(RunLogs, EventsSayWhatTheMetricsSay) {
  const Workplace place;
  const ProgramOutcome outcome = succeeded(place.train(
      run_with({"data.valid=" + (place / "valid"), "data.reset_attention_mask=true", "data.eod=50256"})));
  const std::vector<std::string> files = testing::event_files(place / "run");
  ASSERT_EQ(files.size(), 1u);
  const std::vector<ReadEvent> events = read_event_file(files[0]);
  std::map<std::int64_t, std::map<std::string, float>> by_step;
  std::string config;
  for (const ReadEvent& event : events) {
    by_step[event.step].insert(event.scalars.begin(), event.scalars.end());
    if (event.texts.contains("config")) config = event.texts.at("config");
  }
  expect_parts(config, {"\"pipeline\": 2"});
  const std::vector<JsonValue> metrics = place.metrics();
  ASSERT_EQ(metrics.size(), 3u);  // steps 1, 2 and 4
  for (const JsonValue& m : metrics) {
    const std::map<std::string, float>& scalars = by_step.at(m.find("step")->as_integer());
    const auto expect = [&](const std::string& tag, double value) { EXPECT_EQ(scalars.at(tag), static_cast<float>(value)) << tag; };
    expect("train/loss", number(m, "loss"));
    expect("train/grad_norm", number(m, "grad_norm"));
    expect("train/lr", number(m, "lr"));
    expect("train/tokens", number(m, "tokens"));
    expect("train/skipped_steps", 0);
    expect("perf/step_ms", number(m, "step_ms"));
    expect("perf/tokens_per_s", number(m, "tokens_per_s"));
    expect("perf/mfu", number(m, "mfu"));
    expect("perf/mfu_masked", number(m, "mfu_masked"));
    const auto of_peak = [](const JsonValue& line) { return number(line, "mfu") * number(line, "step_ms"); };
    if (outcome.out.find("mfu is a share of") == std::string::npos) {
      EXPECT_NEAR(of_peak(m), of_peak(metrics[0]), 1e-9);
    }
    expect("mem/peak_allocated_bytes", number(m, "peak_bytes"));
    for (const std::string axis : {"tp", "cp", "dp", "pp"}) expect("comm_bytes/" + axis, number(*m.find("comm_bytes"), axis));
  }
  for (const JsonValue& e : place.records("run/eval.jsonl")) {
    const std::map<std::string, float>& scalars = by_step.at(e.find("step")->as_integer());
    EXPECT_EQ(scalars.at("val/loss"), static_cast<float>(number(e, "valid_loss")));
    EXPECT_EQ(scalars.at("val/bpb"), static_cast<float>(number(e, "valid_bits_per_byte")));
    EXPECT_EQ(scalars.at("val/ppl"), static_cast<float>(std::exp(number(e, "valid_loss"))));
  }

  // The times of a step, apart from its metrics: parts and rest make the step, waiting is in the parts.
  const std::vector<JsonValue> timing = place.records("run/timing.jsonl");
  ASSERT_EQ(timing.size(), 3u);
  for (std::size_t i = 0; i < timing.size(); ++i) {
    const JsonValue& t = timing[i];
    EXPECT_EQ(number(t, "step"), number(metrics[i], "step"));
    EXPECT_EQ(number(t, "steps"), i == 2 ? 2 : 1);
    double parts = number(t, "rest_ms"), waited = 0, waited_for = 0;
    for (const JsonMember& part : t.find("ms")->members()) {
      parts += part.value.as_number();
      EXPECT_LE(number(*t.find("waited_ms"), part.key), part.value.as_number() + 1e-6) << part.key;
      EXPECT_EQ(by_step.at(t.find("step")->as_integer()).at("time_ms/" + part.key), static_cast<float>(part.value.as_number()));
    }
    for (const JsonMember& part : t.find("waited_ms")->members()) waited += part.value.as_number();
    for (const JsonMember& axis : t.find("waited_for_ms")->members()) waited_for += axis.value.as_number();
    EXPECT_NEAR(parts, number(t, "step_ms"), 1e-6 * number(t, "step_ms"));
    EXPECT_GT(waited, 0);  // eight ranks
    EXPECT_NEAR(waited_for, waited, 0.05 * waited + 1);
    EXPECT_GT(number(*t.find("ms"), "backward"), 0);
    const JsonValue& busy = *t.find("busy_ms");
    EXPECT_LE(number(busy, "min"), number(busy, "mean"));
    EXPECT_LE(number(busy, "mean"), number(busy, "max"));
  }

  const nlohmann::json memory = nlohmann::json::parse(read_file(place / "run/memory.json"));
  ASSERT_EQ(memory["ranks"].size(), 8u);
  std::int64_t most = 0;
  for (const nlohmann::json& rank : memory["ranks"]) {
    std::int64_t by_use = 0, by_name = 0;
    for (const auto& [use, bytes] : rank["by_use"].items()) by_use += bytes.get<std::int64_t>();
    EXPECT_EQ(by_use, rank["bytes"]);
    EXPECT_EQ(rank.contains("allocations"), rank["dp"] == 0 && rank["tp"] == 0);
    if (rank.contains("allocations"))
      for (const nlohmann::json& allocation : rank["allocations"]) by_name += allocation["bytes"].get<std::int64_t>();
    EXPECT_LE(by_name, rank["bytes"]);
    most = std::max(most, rank["bytes"].get<std::int64_t>());
  }
  EXPECT_EQ(static_cast<double>(most), number(metrics.back(), "peak_bytes"));
}

// Runs go on when nobody reads their lines any more; all other commands end as other tools do.
TEST(RunLogs, APipeThatCloses) {
  const Workplace place;
  const auto into_closed_pipe = [&place](const std::string& command) {
    return run_command({"bash", "-c", fmt::format("{{ sleep 0.1; {}; echo $? >{}; }} | :", command, place / "code")});
  };
  const std::string program = TRIDENT_BINARY, config = " --config " + (place / "config.json");
  const std::string train = program + " train" + config + " --set checkpoint.every=2 --set run.dir=";
  for (const auto& [run, command] : {std::pair{"run", train + (place / "run")},
                                     {"again", program + " supervise -- " + train + (place / "again")}}) {
    const ProgramOutcome outcome = into_closed_pipe(command);
    EXPECT_EQ(read_file(place / "code"), "0\n") << outcome.err;
    EXPECT_EQ(place.metrics(run).size(), 2u);
    expect_parts(outcome.err, {"standard output could not be written: lines of this run are missing there"});
  }
  for (const std::string& command : {program + " plan" + config, program + " ckpt ls " + (place / "run/ckpt")}) {
    const ProgramOutcome outcome = into_closed_pipe(command);
    EXPECT_EQ(read_file(place / "code"), "141\n");
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(RunLogs, TensorBoardOffAndNoTraceLeaveNoSuchFiles) {
  const Workplace place;
  const ProgramOutcome outcome = succeeded(place.train({"run.steps=1", "log.tensorboard=false", "log.trace_steps=[]"}));
  EXPECT_TRUE(testing::event_files(place / "run").empty());
  EXPECT_FALSE(std::filesystem::exists(place / "run/trace"));
  expect_parts(outcome.out, {"step of ", "ms, mean over ranks: forward "});
  EXPECT_EQ(outcome.out.find("between nodes"), std::string::npos);
}

TEST(RunLogs, TheStepsAskedForAreTraced) {
  const Workplace place;
  const ProgramOutcome outcome = succeeded(place.train(run_with({"log.trace_steps=[2,3]", "data.valid=" + (place / "valid")})));
  expect_parts(outcome.out, {"trace: " + (place / "run/trace/steps_2-3.json")});
  const nlohmann::json trace = nlohmann::json::parse(read_file(place / "run/trace/steps_2-3.json"));
  const nlohmann::json schema = nlohmann::json::parse(read_file(std::string(TRIDENT_SOURCE_DIR) + "/docs/trace.schema.json"));
  for (const std::string& problem : testing::schema_problems(schema, trace)) ADD_FAILURE() << problem;
  for (const std::string& problem : testing::trace_problems(trace)) ADD_FAILURE() << problem;
  const auto lanes = testing::slices_by_lane(trace);
  for (int rank = 0; rank < 8; ++rank) {
    ASSERT_EQ(lanes.at({rank, "step"}).size(), 2u);
    EXPECT_EQ(lanes.at({rank, "step"})[0]["name"], "step 2");
    EXPECT_EQ(lanes.at({rank, "step"})[1]["name"], "step 3");
  }
  EXPECT_EQ(testing::count_arrows(trace), 2u * 4 * 4 * 2);  // steps x pipelines x micro-batches x (activation, gradient)
}

}  // namespace
}  // namespace trident
