// trident study, as a user runs it.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/file_io.h"
#include "tests/app/json_answer.h"
#include "tests/app/program.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

const std::string kConfigs = TRIDENT_SOURCE_DIR "/configs/";

JsonValue study(std::vector<std::string> words) {
  words.insert(words.begin(), "study");
  words.emplace_back("--json");
  const ProgramOutcome outcome = succeeded(run_program(words));
  EXPECT_EQ(outcome.err, "");
  return parsed(outcome.out);
}

// The first processor that this test may use, as taskset takes it.
std::string first_processor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  int cpu = 0;
  while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &set)) ++cpu;
  return fmt::format("{}", cpu);
}

double seconds_of_parts(const JsonValue& row) {
  double sum = 0;
  for (const JsonMember& part : row.find("parts_s")->members()) sum += part.value.as_number();
  return sum;
}

// The case of allenai/OLMo issue 762. What Trident sends is counted by dry ranks; DDP's bytes follow from the parameters.
TEST(StudyOfOlmo, FullShardLosesMoreThanFourFifthsToCollectivesOfEveryMicroBatch) {
  const JsonValue result = study({"--config", kConfigs + "studies/olmo_1b.json"});
  std::map<std::string, JsonValue> rows;
  for (const JsonValue& row : result.find("rows")->items()) {
    rows[row.find("arm")->as_string()] = row;
    EXPECT_TRUE(row.find("fits")->as_bool());
    EXPECT_NEAR(seconds_of_parts(row), number(row, "step_s"), 1e-6 * number(row, "step_s"));
    EXPECT_EQ(row.find("micro_batches")->as_integer(), 32);
  }
  ASSERT_EQ(rows.size(), 4u);
  const JsonValue &ddp = rows.at("DDP"), &full = rows.at("FULL_SHARD"), &once = rows.at("SHARD_GRAD_OP");
  const auto sent = [](const JsonValue& row) { return number(*row.find("bytes_sent"), "dp"); };
  // Gradients in fp32 and once, 1.28e9 of them: embedding and head have a buffer each.
  EXPECT_NEAR(sent(ddp), 2 * 0.75 * 4 * (1177e6 + 103e6), 0.01 * sent(ddp));
  EXPECT_EQ(number(ddp, "gathers"), 0);
  EXPECT_EQ(number(ddp, "reductions"), 1);
  EXPECT_EQ(number(full, "reductions"), 32);
  EXPECT_NEAR(number(full, "gathers") + number(full, "reductions"), 3 * 32, 4);  // the head's backward follows its forward
  EXPECT_GT(sent(full), 24 * sent(ddp));
  EXPECT_GT(number(full, "step_s"), 4.5 * number(ddp, "step_s"));
  EXPECT_GT(number(once, "step_s"), 3 * number(ddp, "step_s"));
  EXPECT_GT(number(*full.find("parts_s"), "dp"), 0.8 * number(full, "step_s"));
  // Another 44 GB take this by both sharded rows: gathers once a micro-batch, 169 GB as in the issue, are four to five times DDP.
  const double per_byte = (number(full, "step_s") - number(once, "step_s")) / (sent(full) - sent(once));
  EXPECT_NEAR(per_byte, 1 / 2.6e9, 0.05 / 2.6e9);
  const double of_the_issue = number(once, "step_s") + per_byte * (169e9 - sent(once));
  EXPECT_GT(of_the_issue, 4 * number(ddp, "step_s"));
  EXPECT_LT(of_the_issue, 5 * number(ddp, "step_s"));
  const std::string why = result.find("causes")->items().at(0).as_string();
  expect_parts(why, {"FULL_SHARD", "32 micro-batches x 3 collectives", "236.0 GB a GPU over dp instead of 7.7 GB"});
}

TEST(Study, StrongAndWeakScalingHoldWhatTheySay) {
  const std::vector<std::string> words{"--config", kConfigs + "gpt3_175b_tp8_pp8.json", "--cluster", "h100_sxm_ndr", "--vary",
                                       "gpus=512..2048", "--set", "batch.global=192"};
  std::vector<std::string> weakly = words;
  weakly.insert(weakly.end(), {"--scaling", "weak"});
  const JsonValue strong = study(words), weak = study(weakly);
  for (std::size_t i = 0; i < 3; ++i) {
    const JsonValue &s = strong.find("rows")->items().at(i), &w = weak.find("rows")->items().at(i);
    EXPECT_EQ(s.find("gpus")->as_integer(), 512 << i);
    EXPECT_EQ(s.find("tokens_per_step")->as_integer(), 192 * 2048);
    EXPECT_EQ(w.find("tokens_per_step")->as_integer(), (12 * 2048) * (8 << i));  // 192 sequences over 16 replicas
    EXPECT_EQ(w.find("micro_batches")->as_integer(), 12);
    EXPECT_EQ(s.find("micro_batches")->as_integer(), 24 >> i);
    EXPECT_NEAR(seconds_of_parts(s), number(s, "step_s"), 1e-6 * number(s, "step_s"));
    EXPECT_GT(number(s, "mfu"), 0.01);
    EXPECT_LT(number(s, "mfu"), 0.7);
  }
  const auto efficiency = [](const JsonValue& result, std::size_t i) {
    return number(result.find("rows")->items().at(i), "efficiency");
  };
  EXPECT_EQ(efficiency(strong, 0), 1);
  EXPECT_LT(efficiency(strong, 2), 0.8);  // 6 micro-batches for 8 stages
  EXPECT_GT(efficiency(weak, 2), 0.9);
  expect_parts(strong.find("held_fixed")->items().at(0).as_string(), {"global batch"});
  expect_parts(weak.find("held_fixed")->items().at(0).as_string(), {"12 sequences"});
  expect_parts(strong.find("causes")->items().at(0).as_string(), {"from 512 to 2048 GPUs efficiency falls"});
}

// Each point again by trident plan --cluster with the batch that its scaling gives it, and efficiency from those times alone.
TEST(Study, EfficiencyIsThatOfStepsPlannedOneByOne) {
  const std::vector<std::string> common{"--config", kConfigs + "gpt3_175b_tp8_pp8.json", "--cluster", "h100_sxm_ndr", "--set"};
  const auto seconds = [&](std::int64_t gpus, std::int64_t batch) {
    std::vector<std::string> words = common;
    words.insert(words.begin(), "plan");
    words.insert(words.end(), {fmt::format("batch.global={}", batch), "--gpus", fmt::format("{}", gpus), "--json"});
    const ProgramOutcome outcome = succeeded(run_program(words));
    return number(*parsed(outcome.out).find("cluster")->find("step"), "seconds");
  };
  const auto rows = [&](const std::string& scaling) {
    std::vector<std::string> words = common;
    words.insert(words.end(), {"batch.global=192", "--vary", "gpus=512..2048", "--scaling", scaling});
    return *study(words).find("rows");
  };
  const double strong[] = {seconds(512, 192), seconds(1024, 192), seconds(2048, 192)};
  // Replicas of 64 GPUs; the configuration's 16 have 12 sequences each.
  const double weak[] = {seconds(512, 12 * 8), seconds(1024, 12 * 16), seconds(2048, 12 * 32)};
  const JsonValue strong_rows = rows("strong"), weak_rows = rows("weak");
  for (std::size_t i = 0; i < 3; ++i) {
    const double gpus = static_cast<double>(512 << i);
    EXPECT_NEAR(number(strong_rows.items().at(i), "efficiency"), strong[0] * 512 / (strong[i] * gpus), 1e-9);
    EXPECT_NEAR(number(weak_rows.items().at(i), "efficiency"), weak[0] / weak[i], 1e-9);
    EXPECT_NEAR(number(strong_rows.items().at(i), "tokens_per_s"), 192 * 2048 / strong[i], 1e-6 * 192 * 2048 / strong[i]);
  }
  // 24, 12 and 6 micro-batches of one pipeline: what the bubble and the reductions take stays, the rest is in proportion.
  EXPECT_NEAR((strong[0] - strong[1]) / (strong[1] - strong[2]), 2, 0.05);
  EXPECT_GT(strong[2], strong[0] * (6 + 7) / (24 + 7));  // (m + p - 1) of equal parts, and reductions on top
}

TEST(Study, PointsThatCannotBeAreRowsWithReasons) {
  const JsonValue result = study({"--config", kConfigs + "gpt3_175b_tp8_pp8.json", "--cluster", "h100_sxm_ndr", "--set",
                                  "batch.global=96", "--vary", "gpus=32|96|100|128|4096|12288", "--vary", "micro=1|5"});
  std::map<std::string, std::string> reasons;
  for (const JsonValue& row : result.find("rows")->items()) {
    const std::string key =
        fmt::format("{}/{}", row.find("settings")->find("batch.micro")->as_string(), row.find("gpus")->as_integer());
    reasons[key] = row.find("possible")->as_bool() ? "" : row.find("reason")->as_string();
  }
  ASSERT_EQ(reasons.size(), 12u);
  EXPECT_EQ(reasons.at("1/128"), "");
  for (const auto& [key, part] :
       std::map<std::string, std::string>{{"1/32", "not a multiple of the 64 ranks of a replica (tp 8 x pp 8)"},
                                          {"1/96", "not a multiple of the 64"},
                                          {"1/100", "not a multiple of the 64"},
                                          {"1/12288", "batch.global"},
                                          {"5/128", "batch.micro"}})
    EXPECT_NE(reasons.at(key).find(part), std::string::npos) << key << ": " << reasons.at(key);
  // A node and a half.
  const JsonValue odd = study({"--config", kConfigs + "zero_zero3.json", "--cluster", "h100_sxm_ndr", "--vary", "gpus=8|12",
                               "--set", "parallel.pipeline=1", "--set", "batch.global=48"});
  EXPECT_FALSE(odd.find("rows")->items().at(1).find("possible")->as_bool());
  expect_parts(odd.find("rows")->items().at(1).find("reason")->as_string(), {"12"});
}

TEST(Study, WritesTextCsvAndPictures) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{
      "study",          "--config", kConfigs + "zero_zero3.json", "--cluster", "a100_sxm_hdr",   "--vary",
      "gpus=2..8",      "--vary",   "zero=zero1|zero3",           "--svg",     folder / "a.svg", "--html",
      folder / "a.html"};
  const ProgramOutcome text = succeeded(run_program(words));
  expect_parts(text.out, {"Strong scaling", "efficiency", "zero3", "\npredicted, by prices of: A100 80 GB nodes with HDR"});
  const std::string svg = read_file(folder / "a.svg"), html = read_file(folder / "a.html");
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  expect_parts(svg, {"zero3"});
  expect_parts(html, {"Time of a step by part"});
  EXPECT_TRUE(text.out.ends_with(fmt::format("\n{}: open it in a browser\n{}: open it in a browser\n", words[10], words[12])));
  const std::string studied[] = {"configuration: " + kConfigs + "zero_zero3.json",
                                 "model: llama of 14.37M parameters, 8 layers, hidden 192, 8 heads (4 kv), vocabulary 50257",
                                 "batch: 16 sequences of 256 tokens"};
  for (const std::string& line : studied) {
    expect_parts(text.out, {(line + '\n').c_str()});
    expect_parts(html, {line.c_str()});
  }
  expect_parts(html, {" UTC: trident study --config "});
  EXPECT_EQ(html.find("http://"), html.find("http://www.w3.org"));
  std::vector<std::string> csv_words = words;
  csv_words.emplace_back("--csv");
  const ProgramOutcome csv = run_program(csv_words);
  EXPECT_EQ(csv.out.rfind("arm,settings_parallel.zero,gpus,possible,replicas", 0), 0u) << csv.out.substr(0, 200);
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 7);
}

TEST(Study, NamesTheModelsAndBatchesThatVary) {
  const JsonValue result = study({"--set", "model.preset=llama-1m", "--set", "batch.sequence=16", "--set", "batch.global=8",
                                  "--cluster", "cpu", "--vary", "layers=1|2,global=8|16"});
  EXPECT_EQ(result.find("models")->items().size(), 2u);
  EXPECT_EQ(*result.find("batches"), (JsonValue::Array{"8 sequences of 16 tokens", "16 sequences of 16 tokens"}));
}

TEST(Study, RefusesWhatItCannotCompare) {
  const std::string config = kConfigs + "zero_zero3.json";
  const auto refused = [&](std::vector<std::string> words, const std::vector<std::string>& parts) {
    words.insert(words.begin(), "study");
    expect_one_line(run_program(words), 64, parts);
  };
  refused({"--config", config}, {"nothing varies", "--vary gpus=8..64, --vary 'zero=zero1|zero3'"});
  for (const char* const key : {"gpus", "micro"})
    refused({"--config", config, "--vary", fmt::format("{}=16-128", key)}, {"--vary", "\"16-128\"", "; write 16..128"});
  refused({"--config", config, "--vary", "zeroo=zero1"}, {"--vary", "zeroo", "did you mean zero?"});
  refused({"--config", config, "--vary", "model.foo=1"}, {"--vary", "model.foo", "llama"});
  refused({"--config", config, "--vary", "dp=1|2", "--gpus", "8", "--cluster", "h100_sxm_ndr"}, {"parallel.data", "gpus"});
  refused({"--config", config, "--vary", "gpus=1..1000000000", "--cluster", "h100_sxm_ndr"}, {"1..1000000000", "16777216"});
  refused({"--config", config, "--vary", "micro=1..4096,global=1..4096,seq=1..4096,gpus=1..4096"}, {"--cluster"});
  refused({"--config", config, "--vary", "micro=1..4096,global=1..4096,seq=1..4096,gpus=1..4096", "--cluster", "h100_sxm_ndr"},
          {"more than 4096 points"});
  for (const std::vector<std::string>& where : {std::vector<std::string>{"--cluster", "cpu"}, {"--cluster", "cpu", "--run"}}) {
    refused(plus({"--config", config, "--vary", "micro=1", "--set", "device=cuda"}, where),
            {"device = cuda", "set device to", "--cluster"});
  }
  refused({"--config", config, "--vary", "gpus=64..8"}, {"64..8", "empty: it ends below its begin; write 8..64"});
  refused({"--config", config, "--vary", "micro=1..0"}, {"1..0", "empty: it ends below its begin; write 1..1"});
  refused({"--config", config, "--vary", "batch=3"},
          {"--vary: unknown key \"batch\": it is a block; vary one of batch.global, batch.micro, batch.sequence"});
  refused({"--config", config, "--vary", "zero=zero9"}, {"--vary: parallel.zero", "zero9"});
  refused({"--config", config, "--vary", "micro=1", "--vary", "batch.micro=2"}, {"batch.micro", "twice"});
  refused({"--config", config, "--vary", "gpus=8", "--cluster", "h1000"}, {"h1000", "h100_sxm_ndr"});
  refused({"--config", config, "--vary", "gpus=8", "--gpus", "8"}, {"--gpus"});
  refused({"--config", config, "--vary", "gpus=64..1024"}, {"gpus", "--cluster"});
  refused({"--config", config, "--vary", "zero=zero1|zero3", "--gpus", "64"}, {"gpus", "--cluster"});
  refused({"--config", config, "--vary", "gpus=8", "--cluster", "no_such.json"}, {"no_such.json"});
  refused({"--config", config, "--vary", "gpus=8", "--scaling", "both"}, {"--scaling", "strong", "weak"});
  refused({"--config", config, "--vary", "gpus=8", "--json", "--csv"}, {"choose one"});
  refused({"--config", config, "--vary", "gpus=8", "--set", "parallel.zeroo=1"}, {"parallel.zeroo"});
  refused({"--config", "no_such.json", "--vary", "gpus=8"}, {"no_such.json"});
  refused({"--config", config, "--vary", "gpus=3|5", "--cluster", "h100_sxm_ndr", "--svg", "/tmp/never.svg"},
          {"no point of the study can be: "});
  EXPECT_FALSE(file_exists("/tmp/never.svg"));
}

TEST(Study, AnArmSetsNothingThatVaries) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* set, const char* vary, const char* part) {
    write_file(
        folder / "study.json",
        fmt::format(R"({{"study": "s", "config": "{}learn_1f1b.json", "arms": [{{"name": "a", "set": {}}}], "vary": ["{}"]}})",
                    kConfigs, set, vary));
    expect_one_line(run_program({"study", "--config", folder / "study.json", "--cluster", "h100_sxm_ndr"}), 64,
                    {"arm \"a\" sets ", part, ", which varies: its value would never count"});
  };
  refused(R"({"batch.micro": 5})", "micro=1", "batch.micro=5");
  refused(R"({"batch.micro": 5})", "zero=zero1|zero3,micro=1", "batch.micro=5");
  refused(R"({"model.num_hidden_layers": 2})", "layers=1|2", "model.num_hidden_layers=2");
}

TEST(Study, WithoutAPointThatCanBeIsRefusedWithItsReasons) {
  const std::string config = kConfigs + "gpt3_175b_tp8_pp8.json";
  const auto refused = [&](const std::vector<std::string>& words, const std::vector<std::string>& parts) {
    expect_one_line(run_program(plus({"study", "--config", config, "--cluster", "h100_sxm_ndr"}, words)), 64, parts);
  };
  for (const std::string form : {"", "--json", "--csv"}) {
    std::vector<std::string> words{"--vary", "gpus=3|5"};
    if (!form.empty()) words.push_back(form);
    refused(words, {"no point of the study can be: 3 ranks are not a multiple of the 64 ranks of a replica (tp 8 x pp 8), as 64 "
                    "are; 5 "});
  }
  refused({"--vary", "gpus=3|5|7|9|11"},
          {"; 7 ranks are not a multiple of the 64 ranks of a replica (tp 8 x pp 8), as 64 are (2 more reasons); vary other "
           "values"});
  // Each degree alone is allowed; their product is no number of ranks, and none of 32 bits.
  refused({"--vary", "tp=65536", "--set", "parallel.pipeline=65536", "--set", "parallel.layers=null", "--set",
           "parallel.sequence_parallel=false"},
          {"parallel: ", " ranks; at most 16777216 are planned"});
}

TEST(Study, ShippedStudiesHaveAnswers) {
  std::size_t studies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs + "studies")) {
    ++studies;
    SCOPED_TRACE(entry.path().filename().string());
    const JsonValue result = study({"--config", entry.path().string()});
    EXPECT_NE(result.find("study")->as_string(), "");
    std::size_t possible = 0;
    for (const JsonValue& row : result.find("rows")->items()) possible += row.find("possible")->as_bool() ? 1 : 0;
    EXPECT_EQ(possible, result.find("rows")->items().size());
  }
  EXPECT_GE(studies, 5u);
}

// Rates of processors are named as for trident plan --cluster, and give the same step.
TEST(Study, ClustersMayBeOfProcessors) {
  const std::vector<std::string> words{"--config", kConfigs + "learn_1f1b.json", "--cluster", "cpu"};
  std::vector<std::string> varied = words, planned = words;
  varied.insert(varied.end(), {"--vary", "gpus=4|8"});
  planned.insert(planned.begin(), "plan");
  planned.emplace_back("--json");
  const JsonValue result = study(varied), rows = *result.find("rows");
  EXPECT_EQ(result.find("counted_as")->as_string(), "rank");
  const ProgramOutcome plan = succeeded(run_program(planned));
  const JsonValue step = *parsed(plan.out).find("cluster")->find("step");
  EXPECT_EQ(number(rows.items().at(0), "step_s"), number(step, "seconds"));
  EXPECT_EQ(number(rows.items().at(0), "mfu"), number(*parsed(plan.out).find("cluster")->find("mfu"), "value"));
  EXPECT_GT(number(rows.items().at(1), "step_s"), 0);
  // No word of GPUs, in no form.
  const TemporaryFolder folder;
  varied.insert(varied.begin(), "study");
  varied.insert(varied.end(), {"--svg", folder / "a.svg", "--html", folder / "a.html"});
  const ProgramOutcome text = succeeded(run_program(varied));
  expect_parts(text.out, {"\nranks  replicas  micro-batches  tokens/s  tokens/s a rank  step ms  compute ms  ",
                          "  GB held  of GB"});
  for (const std::string& said : {text.out, read_file(folder / "a.svg"), read_file(folder / "a.html")})
    EXPECT_EQ(said.find("GPU"), std::string::npos) << said.substr(said.find("GPU") - 100, 200);
}

TEST(Study, AVariedDeviceIsAMatterOfPoints) {
  const JsonValue result =
      study({"--config", kConfigs + "learn_1f1b.json", "--cluster", "cpu", "--vary", "device=cpu|cuda", "--gpus", "4"});
  EXPECT_TRUE(result.find("rows")->items().at(0).find("possible")->as_bool());
  expect_parts(result.find("rows")->items().at(1).find("reason")->as_string(), {"device = cuda"});
}

// One processor is another machine than that of the shipped profile, which has two.
TEST(Study, RatesOfAnotherMachineAreRefusedOrSaid) {
  std::vector<std::string> words{"taskset", "-c", first_processor(), TRIDENT_BINARY, "study", "--config",
                                 kConfigs + "learn_1f1b.json", "--set", "batch.sequence=32", "--vary", "micro=1", "--run"};
  expect_one_line(run_command(words), 64, {"no profile of this machine with 1 core;", "trident bench --calibrate"});
  words.insert(words.end(), {"--cluster", "cpu", "--json"});
  const ProgramOutcome named = succeeded(run_command(words));
  const JsonValue result = parsed(named.out);
  EXPECT_GT(number(result.find("rows")->items().at(0), "measured_s"), 0);
  const std::string said = result.find("held_fixed")->items().back().as_string();
  expect_parts(said, {"Measured is not what was predicted", "2 cores", "with 1 core;", "--calibrate"});
}

// Executed on this machine: what was predicted for it stands beside, and what is too large is told.
TEST(Study, ExecutesWhatFitsThisMachine) {
  const unsigned cores = std::thread::hardware_concurrency();
  const JsonValue result = study({"--config", kConfigs + "learn_1f1b.json", "--cluster", "cpu", "--run", "--set",
                                  "batch.sequence=32", "--vary",
                                  "schedule=gpipe|1f1b"});
  for (const JsonValue& row : result.find("rows")->items()) {
    ASSERT_TRUE(row.find("possible")->as_bool()) << to_json_text(row);
    EXPECT_GT(number(row, "measured_s"), 0);
    EXPECT_GT(number(row, "measured_memory_bytes"), 0);
    EXPECT_EQ(row.find("measured_clock")->as_string(), cores < 4 ? "processor" : "wall");
    // The executed run predicted the same of itself, in its comparison.json, as the study does; its clock leaves the bubble out.
    const double predicted = number(row, "step_s") - number(*row.find("parts_s"), "bubble");
    if (cores == 2) {  // as many as the profile has
      EXPECT_NEAR(number(row, "predicted_by_run_s"), predicted, 1e-6 * predicted);
      EXPECT_NEAR(number(row, "measured_over_predicted"), number(row, "measured_s") / predicted, 1e-6);
    }
    EXPECT_EQ(row.find("measured_steps")->as_integer(), 5);
    EXPECT_NEAR(seconds_of_parts(row), number(row, "step_s"), 1e-6 * number(row, "step_s"));
  }
  const JsonValue large = study({"--config", kConfigs + "olmo_1b.json", "--cluster", "cpu", "--run", "--vary",
                                 "gpus=4"});
  EXPECT_NE(large.find("rows")->items().at(0).find("not_run"), nullptr);
}

// Random tokens are no pairs of answers, which a study says of its points and a bench at once.
TEST(Study, ExecutesNoPairs) {
  const std::vector<std::string> pairs{"--config", kConfigs + "learn_1f1b.json", "--set", "loss.type=dpo", "--set",
                                       "data.samples=packed"};
  std::vector<std::string> words = pairs;
  words.insert(words.end(), {"--cluster", "cpu", "--run", "--vary", "micro=1"});
  EXPECT_EQ(study(words).find("rows")->items().at(0).find("not_run")->as_string(),
            "loss.type \"dpo\" learns from pairs of answers, and random tokens are none");
  words = pairs;
  words.insert(words.begin(), "bench");
  expect_one_line(run_program(words), 64, {"loss.type = \"dpo\": random tokens are no pairs of answers; measure a step with"});
}

}  // namespace
}  // namespace trident
