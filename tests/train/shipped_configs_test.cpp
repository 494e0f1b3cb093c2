// Every file of configs/: what its comment promises (machine, command, ranks) is what it asks for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <regex>

#include "core/file_io.h"
#include "model/config/model_stats.h"
#include "train/config/option_table.h"
#include "train/plan/run_plan.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

const std::filesystem::path kFolder = TRIDENT_SOURCE_DIR "/configs";

struct Expected {
  int world = 0;
  double parameters = 0;       // as published, or of the preset's name
  std::vector<int> layers;     // of each stage in model order
  int micro_batches = 0;
};

const std::map<std::string, Expected> kShipped{
    {"laptop.json", {1, 14.4e6, {8}, 4}},
    {"demo_2dp_4pp_4tp.json", {32, 14.4e6, {2, 2, 3, 1}, 4}},
    {"one_node_8.json", {8, 61.1e6, {10, 2}, 8}},
    {"four_nodes_8_2dp_4pp_4tp.json", {32, 1235.8e6, {5, 5, 5, 1}, 64}},
    {"gpt3_175b_tp8_pp8.json", {1024, 175e9, std::vector<int>(8, 12), 96}},
    {"llama3_70b_tp4_pp8_v5.json", {64, 70.6e9, std::vector<int>(40, 2), 64}},
    {"olmo_1b.json", {4, 1177e6, {16}, 32}},
    {"open_r1_qwen2.5_1.5b_sft.json", {8, 1543.7e6, {28}, 2}},
    {"overhead_32m.json", {1, 31.7e6, {8}, 8}},
    {"learn_gpipe.json", {4, 1.65e6, {2, 2, 2, 2}, 8}},
    {"learn_1f1b.json", {4, 1.65e6, {2, 2, 2, 2}, 8}},
    {"learn_interleaved.json", {4, 1.65e6, std::vector<int>(8, 1), 8}},
    {"learn_zero3.json", {4, 1.65e6, {8}, 2}},
    {"learn_tp.json", {4, 1.65e6, {4, 4}, 4}},
    {"zero_ddp.json", {8, 14.4e6, {7, 1}, 4}},
    {"zero_zero1.json", {8, 14.4e6, {7, 1}, 4}},
    {"zero_zero2.json", {8, 14.4e6, {7, 1}, 4}},
    {"zero_shard_grad_op.json", {8, 14.4e6, {7, 1}, 4}},
    {"zero_zero3.json", {8, 14.4e6, {7, 1}, 4}},
};

std::vector<std::string> files_of_the_folder() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (!entry.is_directory()) names.push_back(entry.path().filename().string());  // folders: clusters and profiles of the planner
  std::sort(names.begin(), names.end());
  return names;
}

// "// Run:     <text>" of the opening comment.
std::string said(const std::string& text, const std::string& word) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("\\{\\n(?:  //.*\\n)*  // " + word + ": +(.*)\\n")) ? found[1].str() : "";
}

// Ranks that a launcher's line starts; 0 without a launcher.
int ranks_started(const std::string& command) {
  std::smatch found;
  if (std::regex_search(command, found, std::regex("^mpirun -np (\\d+) trident "))) return std::stoi(found[1]);
  if (std::regex_search(command, found, std::regex("^srun --mpi=pmix -N (\\d+) --ntasks-per-node=(\\d+) trident ")))
    return std::stoi(found[1]) * std::stoi(found[2]);
  EXPECT_EQ(command.rfind("trident ", 0), 0u) << command;
  return 0;
}

// Memory per rank that the comment asks for, in bytes.
double memory_promised(const std::string& machine, int world) {
  std::smatch found;
  if (!std::regex_search(machine, found, std::regex("(\\d+) GB(.*)"))) return 0;
  const bool each = std::regex_search(found[2].str(), std::regex("per rank|each"));
  return std::stod(found[1]) * 1e9 / (each ? 1 : world);
}

TrainConfig shipped(const std::string& name) {
  OptionValues values;
  return load_train_config((kFolder / name).string(), {}, values);
}

class ShippedConfig : public ::testing::TestWithParam<std::string> {};

TEST_P(ShippedConfig, IsWhatItsCommentSays) {
  const std::string text = read_file((kFolder / GetParam()).string());
  ASSERT_TRUE(kShipped.contains(GetParam())) << "say in this test what the new configuration asks for";
  const Expected& expected = kShipped.at(GetParam());
  const std::string run = said(text, "Run");
  EXPECT_NE(said(text, "For"), "") << "the file begins with a comment: For:, Machine:, Run:";
  EXPECT_TRUE(run.ends_with("trident train --config configs/" + GetParam())) << run;

  const TrainConfig config = shipped(GetParam());
  const ModelConfig model = resolve_model(config);
  const MachineFacts machine{.bf16_over_fp32 = 2, .description = "a test", .memory = {{"a test", {0}, std::int64_t{1} << 40}}};
  const RunPlan plan = make_run_plan(config, model, ranks_started(run), machine);
  EXPECT_EQ(plan.world_size(), expected.world);
  EXPECT_EQ(plan.num_micro_batches, expected.micro_batches);
  EXPECT_TRUE(config.run.steps <= 100 || config.checkpoint.every.steps > 0) << "a crash would cost all of it";
  EXPECT_NEAR(static_cast<double>(num_parameters(model)), expected.parameters, 0.01 * expected.parameters);
  std::vector<int> layers;
  for (const std::vector<int>& units : plan.step_spec.units_of_stage)
    layers.push_back(
        static_cast<int>(std::count_if(units.begin(), units.end(), [&](int u) { return u >= 1 && u <= model.layers; })));
  EXPECT_EQ(layers, expected.layers);
  for (const DryRun& stage : dry_stages(plan, nullptr, DryWork::kConstruct))
    EXPECT_LT(static_cast<double>(stage.arena.total_bytes()), memory_promised(said(text, "Machine"), expected.world)) << stage.rank;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) { return info.param.substr(0, info.param.find('.')); }

INSTANTIATE_TEST_SUITE_P(Folder, ShippedConfig, ::testing::ValuesIn(files_of_the_folder()), name_of);

TEST(ShippedConfigs, NoneIsMissing) {
  const std::vector<std::string> there = files_of_the_folder();
  for (const auto& [name, expected] : kShipped) EXPECT_TRUE(std::binary_search(there.begin(), there.end(), name)) << name;
}

TEST(ShippedConfigs, OnePerZeroPreset) {
  std::string rest;
  for (const std::string_view preset : find_option("parallel.zero")->choices) {
    const TrainConfig config = shipped(fmt::format("zero_{}.json", preset));
    EXPECT_EQ(to_string(config.parallel.zero), preset);
    JsonValue others = to_json(config);  // all else is the same in all of them
    others.find("parallel")->set("zero", {});
    others.find("run")->set("dir", {});
    if (rest.empty()) rest = to_json_text(others);
    EXPECT_EQ(to_json_text(others), rest) << preset;
  }
}

}  // namespace
}  // namespace trident
