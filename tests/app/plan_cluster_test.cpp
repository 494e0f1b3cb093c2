// trident plan --cluster on the command line: what is printed, the files, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/json_answer.h"
#include "tests/app/program.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

ProgramOutcome plan(const std::vector<std::string>& arguments, const std::string& config = "demo_2dp_4pp_4tp.json") {
  return run_program(plus({"plan", "--config", TRIDENT_SOURCE_DIR "/configs/" + config}, arguments));
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
  const std::string heading = alone.out.substr(0, alone.out.find("\n\n")), sent = alone.out.substr(alone.out.find("\nsent in a "));
  EXPECT_NE(priced.out.find("\n\n" + heading + "\n"), std::string::npos) << heading;
  expect_parts(priced.out, {"\nthe profile's products were fitted on models at least 1536 wide"});
  EXPECT_TRUE(priced.out.ends_with(sent)) << sent;
  for (const char* part : {"\n  compute ", "\n  bubble ", "\n  optimizer ", "\nMFU is ", "attention in full", " GPU-hours (",
                           "\nfaster would be\n  --set ", "eight of ten took 0.", "\n  activations: attention ",
                           "\n  activations: MLP ", "\n  activations: block inputs ", "\n  no band: published runs"})
    EXPECT_NE(priced.out.find(part), std::string::npos) << part << " in\n" << priced.out;
}

std::vector<std::string> first_lines(const std::string& text, std::size_t count) {
  std::istringstream in(text);
  std::vector<std::string> lines(count);
  for (std::string& line : lines) std::getline(in, line);
  return lines;
}

// Whoever reads five lines knows whether it fits, how fast it is, what bounds it.
TEST(PlanOnACluster, TheVerdictComesFirst) {
  const std::vector<std::string> fits = first_lines(plan({"--cluster", "h100_sxm_ndr"}).out, 5);
  EXPECT_TRUE(fits[0].starts_with("it fits: the most loaded rank, of stage 3, takes ")) << fits[0];
  EXPECT_TRUE(fits[0].ends_with(" of 84.9 GB, 79.6 GB free")) << fits[0];
  EXPECT_TRUE(fits[1].starts_with("a step takes ")) << fits[1];
  expect_parts(fits[1], {" ms (", " tokens/s (", " per GPU ("});
  EXPECT_TRUE(fits[2].starts_with("MFU ") && fits[2].find(", HFU ") != std::string::npos) << fits[2];
  EXPECT_TRUE(fits[3].starts_with("first limit: ")) << fits[3];
  EXPECT_EQ(fits[4], "on H100 nodes with NDR: 32 x H100-SXM5-80GB");
  const ProgramOutcome large = plan({"--cluster", "a100_sxm_40gb_hdr", "--set", "batch.micro=64", "--set", "batch.global=1024"},
                                    "gpt3_175b_tp8_pp8.json");
  const std::vector<std::string> does_not = first_lines(large.out, 4);
  EXPECT_TRUE(does_not[0].starts_with("it does not fit: the most loaded rank, of stage ")) << large.out << large.err;
  EXPECT_TRUE(does_not[3].starts_with("first limit: memory: a rank of stage ")) << does_not[3];
}

// "80 GB" are 79.1 GiB, which are 84.9 GB: said once, with what is not for tensors.
TEST(PlanOnACluster, SaysWhatADeviceHas) {
  const ProgramOutcome outcome = plan({"--cluster", "h100_sxm_ndr"});
  expect_parts(outcome.out, {", and trident plan counts these rows; from 0: ",
                             "\n  H100-SXM5-80GB has 84.9 GB (79.1 GiB of 2^30 bytes, as its software reports it): 1.6 GB for "
                             "the driver's context, ",
                             " GB left for tensors\n"});
}

// The band is that of published runs of the plan's kind. On 1,536 GPUs nobody's gathered parameters in a run that was compared.
TEST(PlanOnACluster, TheBandIsThatOfRunsOfItsKind) {
  const std::vector<std::string> sharded{"--cluster", "a100_sxm_hdr", "--set", "parallel=1536DP x 1PP x 1TP", "--set",
                                         "parallel.zero=zero3", "--set", "parallel.layers=null", "--set",
                                         "parallel.sequence_parallel=false", "--set", "batch.micro=1"};
  const std::string large = succeeded(plan(sharded, "gpt3_175b_tp8_pp8.json")).out;
  expect_parts(large, {" s (no band): ", "no band of times: no run of this program on a GPU was measured, and the published runs "
                       "compared with and that gather parameters and split no model (72) had at most 512 GPUs, this one has "
                       "1,536\n"});
  expect_parts(succeeded(plan({"--cluster", "a100_sxm_hdr", "--set", "parallel.zero=zero3"})).out,
               {"no band of times: ", "over tensor or pipeline ranks, this one does both\n"});
  expect_parts(succeeded(plan({"--cluster", "h100_sxm_ndr", "--gpus", "64", "--set", "parallel.zero=zero3"}, "olmo_1b.json")).out,
               {"of 33 published 16-bit runs on this GPU that gather parameters and split no model, at most 512 GPUs each, "});
  const auto of_several = [&](const char* cluster) {
    return succeeded(plan({"--cluster", cluster, "--gpus", "256", "--set", "parallel.zero=zero3", "--set", "batch.micro=1"},
                          "olmo_1b.json")).out;
  };
  expect_parts(of_several("a100_sxm_40gb_hdr"), {"of 72 published 16-bit runs on GPUs of several kinds, none of them on this one "
                                                 "with as many, that gather "});
  expect_parts(of_several("b200_ndr"), {"on GPUs of several kinds, fewer than ten of them on this one, that gather "});
}

// One that fits with less free than predictions of memory are off.
TEST(PlanOnACluster, SaysThatLittleIsFree) {
  const TemporaryFolder folder;
  const auto verdict = [&](const char* gigabytes) {
    write_file(folder / "c.json", std::string(R"({"name": "c", "hardware": "h100_sxm", "gpus_per_node": {"value": 8, "source": "t"},
                                                  "device_gb": {"source": "t", "value": )") + gigabytes + "}}");
    return first_lines(succeeded(plan({"--cluster", folder / "c.json"}, "gpt3_175b_tp8_pp8.json")).out, 1).front();
  };
  expect_parts(verdict("31.5"), {"it fits: ", " 0.2 GB free, less than the 0.5 GB by which predictions may be off"});
  EXPECT_TRUE(verdict("32").ends_with(" 0.7 GB free")) << verdict("32");
}

// Columns of some stages are said to be some.
TEST(PlanOnACluster, SaysThatStagesAreLeftOut) {
  const auto text = [](const char* layout) {
    return succeeded(plan({"--cluster", "h100_sxm_ndr", "--set", std::string("parallel=") + layout, "--set",
                           "parallel.layers=null"}, "gpt3_175b_tp8_pp8.json")).out;
  };
  expect_parts(text("8DP x 16PP x 8TP"), {", by pipeline stage (8 of 16; --csv has all); * is the most loaded:\n"});
  expect_parts(text("16DP x 8PP x 8TP"), {", by pipeline stage; * is the most loaded:\n"});
}

TEST(PlanOnACluster, CountsSteps) {
  // 16 sequences of 256 tokens are one step, a token more is two.
  const ProgramOutcome one = plan({"--cluster", "h100_sxm_ndr", "--tokens", "4096"});
  expect_parts(one.out, {" tokens take 1 step, "});
  const ProgramOutcome two = plan({"--cluster", "h100_sxm_ndr", "--tokens", "4097"});
  expect_parts(two.out, {" tokens take 2 steps, "});
  const auto of_tokens = [](const char* count) { return succeeded(plan({"--cluster", "h100_sxm_ndr", "--tokens", count})).out; };
  EXPECT_EQ(of_tokens("1.5b"), of_tokens("1.5e9"));
}

TEST(PlanOnACluster, JsonAddsUp) {
  const ProgramOutcome outcome =
      succeeded(plan({"--cluster", "h100_sxm_ndr", "--gpus", "64", "--set", "batch.global=64", "--tokens", "3e9", "--json"}));
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
  const ProgramOutcome outcome = succeeded(plan({"--cluster", "a100_sxm_hdr", "--csv"}));
  std::istringstream lines(outcome.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "quantity,part,stage,unit,value,low,high");
  int rows = 0;
  for (; std::getline(lines, line); ++rows) EXPECT_EQ(std::count(line.begin(), line.end(), ','), 6) << line;
  EXPECT_GT(rows, 60);
  expect_parts(outcome.out, {"\nstep,compute,3,seconds,", "\nfits,,,1,1,,\n"});
}

// The same verdict in every form.
TEST(PlanOnACluster, TheTableHasTheVerdict) {
  const auto check = [](std::vector<std::string> words, const std::string& config, const std::string& fits,
                        const std::string& limit) {
    words.emplace_back("--csv");
    const std::string csv = plan(words, config).out;
    expect_parts(csv, {"\nfits,,,1," + fits + ",,\n"});
    const std::string begin = "\nfirst limit," + limit + ",,1,";
    const std::size_t at = csv.find(begin);
    ASSERT_NE(at, std::string::npos) << csv;
    words.back() = "--json";
    const JsonValue json = parsed(plan(words, config).out);
    const JsonValue& found = *json.find("cluster")->find("limit");
    EXPECT_EQ(found.find("name")->as_string(), limit);
    EXPECT_DOUBLE_EQ(std::stod(csv.substr(at + begin.size())), found.find("share")->as_number());
    const std::string share = fmt::format("{:.1f} % of the step", 100 * found.find("share")->as_number());
    if (limit == "memory") {
      EXPECT_GT(found.find("share")->as_number(), 1);
    } else {
      expect_parts(found.find("why")->as_string(), {share});
    }
  };
  check({"--cluster", "h100_sxm_ndr"}, "demo_2dp_4pp_4tp.json", "1", "links");
  check({"--cluster", "a100_sxm_40gb_hdr", "--set", "batch.micro=64", "--set", "batch.global=1024"}, "gpt3_175b_tp8_pp8.json",
        "0", "memory");
}

// The thread that the file is of names no GPU: 48 GB are no A10's.
TEST(PlanOnACluster, ADeviceOfOtherMemoryIsNotCalledTheGpu) {
  const ProgramOutcome outcome =
      succeeded(plan({"--cluster", "four_gpus_2_6_gb_s", "--gpus", "4", "--set", "batch.global=512"}, "olmo_1b.json"));
  expect_parts(outcome.out, {"4 x 48 GB at rates of A10-24GB\n"});
}

TEST(PlanOnACluster, WritesAPageAndATrace) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{"--cluster",          "h100_sxm_ndr", "--html",
                                       folder / "plan.html", "--trace",      folder / "step.json"};
  const std::string files = fmt::format("\n{}: open it in a browser\n{}: open it in ui.perfetto.dev\n", words[3], words[5]);
  EXPECT_TRUE(succeeded(plan(words)).out.ends_with(files));
  EXPECT_EQ(succeeded(plan(plus(words, {"--csv"}))).out.find("open it"), std::string::npos);
  const std::string html = read_file(folder / "plan.html");
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_EQ(html.find(" src="), html.npos);
  expect_parts(html, {"it fits: ", " GB of 84.9 GB, ", "Made by trident ", " UTC: trident plan cluster --config "});
  expect_parts(read_file(folder / "step.json"), {"\"traceEvents\""});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--csv", "--html", folder / "none/plan.html"}), 74, {"none/plan.html"});
}

// 1,024 GPUs and no memory to speak of.
TEST(PlanOnACluster, NeedsNoLargeMachine) {
  const ProgramOutcome outcome = succeeded(plan({"--cluster", "h100_sxm_ndr"}, "gpt3_175b_tp8_pp8.json"));
  expect_parts(outcome.out, {"1024 x H100-SXM5-80GB"});
}

TEST(PlanOnACluster, RefusesWhatCannotBe) {
  expect_one_line(plan({"--cluster", "h100_sxm_nrd"}), 64,
                  {"there is no such one; ", "; did you mean \"h100_sxm_ndr\"?", "a100_sxm_hdr", "b200_ndr", "h200_sxm_ndr"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "40"}), 64,
                  {"40 GPUs: not a multiple of the 16 that one replica", "tensor 4 x context 1 x pipeline 4", "ask for 32"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "8"}), 64, {"8 GPUs: one replica of the model takes 16"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "36"}), 64, {"36 GPUs", "ask for whole nodes"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "256"}), 64, {"batch.global = 16: not divisible by"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--gpus", "0"}), 64, {"--gpus = 0: must be from 1 to"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--tokens", "nan"}), 64, {"--tokens = nan: must be from 1 to"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--tokens", "-1"}), 64, {"--tokens = -1: must be from 1 to"});
  for (const char* const count : {"K", "1e3K"})
    expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--tokens", count}), 64, {std::string("--tokens = ") + count + ';'});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--ranks", "32"}), 64, {"--ranks", "write --gpus instead"});
  expect_one_line(plan({"--cluster", "h100_sxm_ndr", "--csv", "--json"}), 64, {"--csv", "leave one of them out"});
  for (const std::vector<std::string>& flag : std::vector<std::vector<std::string>>{
           {"--gpus", "64"}, {"--tokens", "1e9"}, {"--csv"}, {"--html", "x.html"}, {"--trace", "x.json"}})
    expect_one_line(plan(flag), 64, {flag.front() + ": needs a cluster to price a step on; add --cluster NAME",
                                     flag.front() == "--gpus" ? ", or write --ranks for" : ""});
}

// A layout that the message proposes is planned.
TEST(PlanOnACluster, RefusesWhatCannotBeLaidOut) {
  const auto with = [](const std::string& setting) {
    return plan({"--cluster", "h100_sxm_ndr", "--set", setting}, "learn_1f1b.json");
  };
  const ProgramOutcome large = with("model.vocab_size=2147483647");
  const std::string use = "; use at most ";
  expect_one_line(large, 64, {"model.vocab_size = 2147483647: ", use});
  const std::string most =
      large.err.substr(large.err.find(use) + use.size(), large.err.size() - large.err.find(use) - use.size() - 1);
  const ProgramOutcome fits_in = succeeded(with("model.vocab_size=" + most));
  EXPECT_TRUE(fits_in.out.starts_with("it does not fit: ")) << fits_in.out.substr(0, 200);
  expect_one_line(with("model.vocab_size=" + std::to_string(std::stoll(most) + 2048)), 64, {use});
  expect_one_line(with("parallel.pipeline=1032"), 64, {"parallel.pipeline = 1032: ", "more stages than the 1024"});
}

TEST(PlanOnACluster, IsAnActionOfPlanToo) {
  const std::string config = TRIDENT_SOURCE_DIR "/configs/demo_2dp_4pp_4tp.json";
  const ProgramOutcome flag = plan({"--cluster", "h100_sxm_ndr", "--csv"});
  const ProgramOutcome action = run_program({"plan", "cluster", "h100_sxm_ndr", "--config", config, "--csv"});
  EXPECT_EQ(action.exit_code, 0) << action.err;
  EXPECT_EQ(action.out, flag.out);
  expect_one_line(run_program({"plan", "cluster", "--config", config}), 64,
                  {"cluster: missing; write the path of a file, or one of "});
}

}  // namespace
}  // namespace trident
