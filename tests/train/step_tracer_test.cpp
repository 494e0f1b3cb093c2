// Traces of real steps on thread ranks, judged by the schema and by the step programs.
#include "train/run/step_tracer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>

#include "core/clock.h"
#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/cpu_ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"
#include "tests/train/trace_file.h"

namespace trident::testing {
namespace {

using nlohmann::json;

struct Traced {
  RunPlan plan;
  json trace;
  std::optional<std::string> path;
};

constexpr int kSteps = 5;

Traced trace_run(const TemporaryFolder& folder, const std::string& config_text, std::vector<std::string> settings,
                 std::int64_t first, std::int64_t last, int begins_at = 1) {
  settings.insert(settings.end(), {"run.steps=100", "data.train=unused", "run.dir=" + folder.path(), "debug.no_alloc=true"});
  const TrainConfig config = parse_train_config(config_text, "test", settings);
  Traced traced{make_run_plan(config, resolve_model(config), 0, cpu_machine_facts(1)), {}, {}};
  const RunPlan& plan = traced.plan;
  const LoadSamples load = random_tokens(plan.model.vocab_size, config.batch.sequence);
  std::ostringstream said;
  LogSink log(said);
  const TrainOutput output{said, ConsoleMode::kPlain, log};
  on_cpu_ranks(plan, [&](int rank, RankTrainer& trainer) {
    RunSink sink(output, config.log);
    StepTracer tracer(trainer, sink, first, last);
    for (int step = begins_at; step <= kSteps; ++step) {
      tracer.before_step(step);
      const double start = monotonic_seconds();
      trainer.step(load);
      tracer.after_step(step, start, monotonic_seconds());
      if (step == 2) trainer.evaluate(load, 1, {});  // leaves nothing in the trace
    }
    const std::string line = tracer.finish(kSteps);
    if (rank == 0 && line.starts_with("trace: ")) traced.path = tracer.path();
  });
  if (traced.path) traced.trace = json::parse(read_file(*traced.path));
  return traced;
}

json schema() { return json::parse(read_file(std::string(TRIDENT_SOURCE_DIR) + "/docs/trace.schema.json")); }

struct Case {
  const char* name;
  std::string config;
  std::vector<std::string> settings;
  std::int64_t first, last;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class Trace : public ::testing::TestWithParam<Case> {};

TEST_P(Trace, HoldsTheProgramsOfItsStepsAndNothingElse) {
  const TemporaryFolder folder;
  const Case& c = GetParam();
  const Traced traced = trace_run(folder, c.config, c.settings, c.first, c.last);
  ASSERT_EQ(traced.path, fmt::format("{}/trace/steps_{}-{}.json", folder.path(), c.first, c.last));
  const json& trace = traced.trace;
  for (const std::string& problem : schema_problems(schema(), trace)) ADD_FAILURE() << problem;
  for (const std::string& problem : trace_problems(trace)) ADD_FAILURE() << problem;

  const auto steps = static_cast<std::size_t>(std::min<std::int64_t>(c.last, kSteps) - c.first + 1);
  const auto lanes = slices_by_lane(trace);
  std::size_t messages = 0;
  for (int rank = 0; rank < traced.plan.world_size(); ++rank) {
    const std::vector<Instruction>& program = traced.plan.step_program(rank).instructions;
    EXPECT_EQ(lanes.at({rank, "step"}).size(), steps);
    const std::vector<json>& compute = lanes.at({rank, "compute"});
    ASSERT_EQ(compute.size(), steps * (program.size() + 1)) << "rank " << rank;  // and the batch
    for (std::size_t i = 0; i < compute.size(); ++i) {
      const std::size_t at = i % (program.size() + 1);
      EXPECT_EQ(compute[i]["args"]["step"], c.first + static_cast<std::int64_t>(i / (program.size() + 1)));
      if (at == 0) {
        EXPECT_EQ(compute[i]["name"], "batch");
        continue;
      }
      EXPECT_EQ(compute[i]["args"]["instruction"], at - 1);
      EXPECT_EQ(compute[i]["args"]["text"], to_string(program[at - 1]));
    }
    const auto operations = [&](const char* lane) { return lanes.contains({rank, lane}) ? lanes.at({rank, lane}).size() : 0; };
    std::size_t sends = 0, receives = 0, gathers = 0, reductions = 0;
    for (const Instruction& i : program) {
      const bool tie = i.kind == InstructionKind::kTieExchange && i.peer != traced.plan.grid.coordinates(rank).pipeline;
      sends += i.is_send() || tie;
      receives += i.is_receive() || tie;
      gathers += i.kind == InstructionKind::kGather;
      reductions += i.kind == InstructionKind::kReduceGradients;
    }
    EXPECT_EQ(operations("send forward") + operations("send backward"), steps * sends) << "rank " << rank;
    EXPECT_EQ(operations("receive forward") + operations("receive backward"), steps * receives) << "rank " << rank;
    if (traced.plan.grid.degrees().data > 1) {
      EXPECT_GE(operations("gather"), steps * gathers);  // a bucket each
      EXPECT_GE(operations("reduce"), steps * reductions);
    }
    if (traced.plan.grid.degrees().tensor > 1) {
      EXPECT_GT(operations("collectives in compute"), steps * 4);
    }
    messages += steps * sends;
  }
  EXPECT_EQ(count_arrows(trace), messages);
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Layouts, Trace,
    ::testing::Values(
        Case{"one_rank_from_the_first_step", tiny_llama_config(), {}, 1, 2},
        Case{"demo_layout", tiny_llama_config(), {"parallel=2DP x 4PP x 4TP", "parallel.sequence_parallel=true"}, 3, 4},
        Case{"tied_interleaved_sharded",
             tiny_gpt2_config(),
             {"parallel=2DP x 2PP", "parallel.schedule=interleaved", "parallel.virtual_stages=2", "parallel.zero=zero3"},
             2,
             3},
        Case{"ended_early", tiny_llama_config(), {"parallel=2PP"}, 4, 100}),
    name_of_case);

TEST(StepTracer, AStartThatGoesOnLeavesTheTraceOfTheEarlierOne) {
  const TemporaryFolder folder;
  const Traced earlier = trace_run(folder, tiny_llama_config(), {}, 2, 4);
  const Traced later = trace_run(folder, tiny_llama_config(), {}, 2, 4, 3);
  EXPECT_EQ(later.path, folder / "trace/steps_3-4.json");
  EXPECT_EQ(slices_by_lane(later.trace).at({0, "step"}).size(), 2u);
  EXPECT_EQ(trace_run(folder, tiny_llama_config(), {}, 2, 4).path, folder / "trace/steps_2-4.2.json") << "the same steps again";
  EXPECT_EQ(json::parse(read_file(folder / "trace/steps_2-4.json")), earlier.trace);
}

TEST(StepTracer, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  std::ofstream(folder / "trace") << "a file where the folder is to be";
  expect_parts(error_of<StorageError>([&] { trace_run(folder, tiny_llama_config(), {"log.on_error=stop"}, 1, 2); }),
               {folder / "trace: the folder cannot be created", "; "});  // and a remedy
}

// A sink holds the trace as it holds the other files of a run: a run that ends with an error leaves none that looks whole.
TEST(RunSink, ATraceAppearsWhenItIsClosed) {
  const TemporaryFolder folder;
  std::ostringstream said;
  LogSink log(said);
  const TrainOutput output{said, ConsoleMode::kPlain, log};
  const std::string path = folder / "run/trace/steps_1-1.json";
  {
    RunSink sink(output);
    sink.open_trace(path, {}, {{}}, 0);
  }
  EXPECT_FALSE(file_exists(path));
  RunSink sink(output);
  sink.open_trace(path, {}, {{}}, 0);
  EXPECT_FALSE(file_exists(path));
  sink.close_trace();
  EXPECT_TRUE(json::parse(read_file(path)).contains("traceEvents"));
  sink.close_trace();  // nothing is open: nothing happens
}

TEST(StepTracer, ARunThatEndsBeforeItLeavesNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(trace_run(folder, tiny_llama_config(), {"parallel=2DP"}, 50, 52).path, std::nullopt);
  EXPECT_TRUE(folder.names().empty());
}

// The judges themselves: each fault is one they must see.
TEST(TraceJudges, SeeFaults) {
  const TemporaryFolder folder;
  const json good = trace_run(folder, tiny_llama_config(), {"parallel=2PP"}, 1, 1).trace;
  const auto find = [&](json& trace, const char* ph) -> json& {
    for (json& e : trace["traceEvents"])
      if (e["ph"] == ph) return e;
    throw std::runtime_error("no such event");
  };
  EXPECT_TRUE(schema_problems(schema(), good).empty());
  EXPECT_TRUE(trace_problems(good).empty());
  json bad = good;
  find(bad, "X").erase("dur");
  EXPECT_EQ(schema_problems(schema(), bad).size(), 1u);
  bad = good;
  find(bad, "X")["cat"] = "lunch";
  EXPECT_EQ(schema_problems(schema(), bad).size(), 1u);
  bad = good;
  find(bad, "X")["dur"] = -1;
  EXPECT_EQ(schema_problems(schema(), bad).size(), 1u);
  bad = good;
  find(bad, "s")["extra"] = 1;
  EXPECT_EQ(schema_problems(schema(), bad).size(), 1u);
  bad = good;
  find(bad, "f")["id"] = 1 << 30;
  EXPECT_EQ(trace_problems(bad).size(), 2u);  // a start without an end, an end without a start
  bad = good;
  find(bad, "s")["ts"] = 1e12;
  EXPECT_EQ(trace_problems(bad).size(), 2u);  // in no slice, and after its end
  bad = good;
  for (json& e : bad["traceEvents"])
    if (e["ph"] == "X" && e["tid"] == 1) e["dur"] = e["dur"].get<double>() + 0.001;
  EXPECT_FALSE(trace_problems(bad).empty());
}

}  // namespace
}  // namespace trident::testing
