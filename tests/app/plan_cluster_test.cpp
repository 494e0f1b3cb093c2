// trident plan --cluster on the command line: what is printed, the files, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/program.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

JsonValue parsed(const std::string& text) {
  return parse_json(text, "a test",
                    {.comments = JsonComments::kRefused, .max_bytes = 1 << 24, .max_depth = 16, .blame = ExitCode::kInternal});
}

ProgramOutcome plan(const std::vector<std::string>& arguments, const std::string& config = "demo_2dp_4pp_4tp.json") {
  std::vector<std::string> words{"plan", "--config", TRIDENT_SOURCE_DIR "/configs/" + config};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_program(words);
}

double sum_of(const JsonValue& object) {
  double sum = 0;
  for (const JsonMember& member : object.members()) sum += member.value.as_number();
  return sum;
}

TEST(PlanOnACluster, SaysWhatAPlanSaysAndMore) {
  const ProgramOutcome alone = plan({"--set", "device=cuda"}), priced = plan({"--cluster", "h100_sxm_ndr"});
  ASSERT_EQ(priced.exit_code, 0) << priced.err;
  EXPECT_EQ(priced.err, "");
  EXPECT_EQ(priced.out.substr(0, alone.out.size()), alone.out) << "sections are added, none is changed";
  for (const char* part : {"\non H100 nodes with NDR: 32 x H100-SXM5-80GB\n", "\na step takes ", "\n  compute ", "\n  recompute ",
                           "\n  bubble ", "\n  optimizer ", "\n  launch ", " tokens/s (", "\nMFU ", "attention in full", "\nHFU ",
                           "\nfirst limit: ", " GPU-hours (", "\nfaster would be\n  --set ", "eight of ten took 0."})
    EXPECT_NE(priced.out.find(part), std::string::npos) << part << " in\n" << priced.out;
}

TEST(PlanOnACluster, CountsSteps) {
  // 16 sequences of 256 tokens are one step, a token more is two.
  const ProgramOutcome one = plan({"--cluster", "h100_sxm_ndr", "--tokens", "4096"});
  EXPECT_NE(one.out.find(" tokens take 1 step, "), std::string::npos) << one.out << one.err;
  const ProgramOutcome two = plan({"--cluster", "h100_sxm_ndr", "--tokens", "4097"});
  EXPECT_NE(two.out.find(" tokens take 2 steps, "), std::string::npos) << two.out << two.err;
}

TEST(PlanOnACluster, JsonAddsUp) {
  const ProgramOutcome outcome =
      plan({"--cluster", "h100_sxm_ndr", "--gpus", "64", "--set", "batch.global=64", "--tokens", "3e9", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonValue json = parsed(outcome.out);
  EXPECT_EQ(json.find("ranks")->as_integer(), 64);
  EXPECT_EQ(json.find("workspaces")->as_string(), "bound");
  const JsonValue& cluster = *json.find("cluster");
  const JsonValue& step = *cluster.find("step");
  const double seconds = step.find("seconds")->as_number();
  EXPECT_NEAR(sum_of(*step.find("parts")), seconds, 1e-9 * seconds);
  EXPECT_LT(step.find("low")->as_number(), seconds);
  EXPECT_GT(step.find("high")->as_number(), seconds);
  const JsonValue::Array& memory = cluster.find("memory")->items();
  const JsonValue::Array& stages = json.find("stages")->items();
  ASSERT_EQ(memory.size(), stages.size());
  for (std::size_t stage = 0; stage < memory.size(); ++stage) {
    const JsonValue& parts = *memory[stage].find("parts");
    EXPECT_EQ(sum_of(parts), memory[stage].find("bytes")->as_number());
    EXPECT_EQ(
        memory[stage].find("bytes")->as_integer() - parts.find("context")->as_integer() - parts.find("communicators")->as_integer(),
        stages[stage].find("bytes")->as_integer());
  }
  const JsonValue& training = *cluster.find("training");
  EXPECT_EQ(training.find("tokens")->as_number(), 3e9);
  EXPECT_NEAR(training.find("gpu_hours")->as_number(), training.find("steps")->as_number() * seconds * 64 / 3600, 1e-6);
  const double tokens = cluster.find("tokens_per_second")->find("value")->as_number() * seconds;
  EXPECT_NEAR(tokens, 64 * 256, 1e-6 * tokens);
}

TEST(PlanOnACluster, TheTableHasSevenColumns) {
  const ProgramOutcome outcome = plan({"--cluster", "a100_sxm_hdr", "--csv"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "quantity,part,stage,unit,value,low,high");
  int rows = 0;
  for (; std::getline(lines, line); ++rows) EXPECT_EQ(std::count(line.begin(), line.end(), ','), 6) << line;
  EXPECT_GT(rows, 60);
  EXPECT_NE(outcome.out.find("\nstep,compute,3,seconds,"), std::string::npos);
}

TEST(PlanOnACluster, WritesAPageAndATrace) {
  const TemporaryFolder folder;
  const ProgramOutcome outcome =
      plan({"--cluster", "h100_sxm_ndr", "--html", folder / "plan.html", "--trace", folder / "step.json", "--csv"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string html = read_file(folder / "plan.html");
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_EQ(html.find(" src="), html.npos);
  EXPECT_NE(read_file(folder / "step.json").find("\"traceEvents\""), std::string::npos);
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--csv", "--html", folder / "none/plan.html"}), 74, {"none/plan.html"});
}

// 1,024 GPUs and no memory to speak of.
TEST(PlanOnACluster, NeedsNoLargeMachine) {
  const ProgramOutcome outcome = plan({"--cluster", "h100_sxm_ndr"}, "gpt3_175b_tp8_pp8.json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("1024 x H100-SXM5-80GB"), std::string::npos);
}

TEST(PlanOnACluster, RefusesWhatCannotBe) {
  expect_one_line(plan({"--cluster", "h100_sxm_nrd"}), 64,
                  {"there is no such one; did you mean h100_sxm_ndr?", "a100_sxm_hdr", "b200_ndr", "h200_sxm_ndr"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "40"}), 64,
                  {"40 GPUs: not a multiple of the 16 that one replica", "tensor 4 x context 1 x pipeline 4", "ask for 32"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "8"}), 64, {"8 GPUs: one replica of the model takes 16"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "36"}), 64, {"36 GPUs", "ask for whole nodes"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "256"}), 64, {"batch.global = 16: not divisible by"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "0"}), 64, {"--gpus = 0: must be from 1 to"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--tokens", "nan"}), 64, {"--tokens = nan: must be from 1 to"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--tokens", "-1"}), 64, {"--tokens = -1: must be from 1 to"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--ranks", "32"}), 64, {"--ranks", "write --gpus instead"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--csv", "--json"}), 64, {"--csv", "leave one of them out"});
  for (const std::vector<std::string>& flag : std::vector<std::vector<std::string>>{
           {"--gpus", "64"}, {"--tokens", "1e9"}, {"--csv"}, {"--html", "x.html"}, {"--trace", "x.json"}})
    expect_one_line(plan(flag), 64, {flag.front() + ": needs a cluster to price a step on; add --cluster NAME"});
  expect_one_line(run_program({"plan", "--cases", "rows.json", "--cluster", "h100_sxm_ndr"}), 64,
                  {"--cases", "leave out", "--cluster"});
}

}  // namespace
}  // namespace trident
