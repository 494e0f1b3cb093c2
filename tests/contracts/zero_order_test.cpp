// Tests that sharding more takes no more memory: in planned bytes of every rank, over layouts and the shipped configurations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/contracts/contract_cases.h"
#include "train/config/option_table.h"
#include "train/plan/run_plan.h"
#include "train/run/dry_run.h"
#include "train/run/run_report.h"

namespace trident::contracts {
namespace {

const MachineFacts kLarge{.bf16_over_fp32 = 2, .description = "a test", .memory = {{"a test", {0}, std::int64_t{1} << 50}}};

std::vector<trident::DryRun> stages_of(RunPlan plan, ZeroPreset preset) {
  return dry_stages(with_policy(std::move(plan), policy_of(preset)), nullptr, DryWork::kStep);
}

std::int64_t bytes(const trident::DryRun& stage) { return stage.arena.total_bytes(); }

// Rank by rank, which is more than the largest of each.
void expect_order(const RunPlan& plan) {
  const auto ddp = stages_of(plan, ZeroPreset::kDdp), zero1 = stages_of(plan, ZeroPreset::kZero1);
  const auto zero2 = stages_of(plan, ZeroPreset::kZero2), zero3 = stages_of(plan, ZeroPreset::kZero3);
  const auto shard_grad_op = stages_of(plan, ZeroPreset::kShardGradOp);
  const auto over_data = static_cast<std::size_t>(Axis::kData);
  for (std::size_t stage = 0; stage < ddp.size(); ++stage) {
    EXPECT_LE(bytes(zero1[stage]), bytes(ddp[stage])) << "stage " << stage;
    EXPECT_LE(bytes(shard_grad_op[stage]), bytes(zero2[stage])) << "stage " << stage;
    EXPECT_LE(bytes(zero3[stage]), bytes(shard_grad_op[stage])) << "stage " << stage;
    // Whoever holds as much sends no more for it.
    if (bytes(zero3[stage]) == bytes(zero2[stage])) {
      EXPECT_EQ(zero3[stage].bytes_sent[over_data], zero2[stage].bytes_sent[over_data]) << "stage " << stage;
    }
    EXPECT_LE(shard_grad_op[stage].bytes_sent[over_data], zero3[stage].bytes_sent[over_data]) << "stage " << stage;
  }
}

RunPlan plan_of(const ContractCase& c) {
  const std::vector<std::string> settings{"run.dir=\"unused\"", "run.steps=9", "data.train=\"unused\"", "run.threads_per_rank=1"};
  const TrainConfig config = parse_train_config(config_of(c), "test", settings);
  return make_run_plan(config, resolve_model(config), 0, kLarge);
}

std::vector<ContractCase> grid() {
  std::vector<ContractCase> cases;
  const ModelNumbers llama{.type = "llama", .layers = 8};
  const ModelNumbers small_vocabulary{.type = "llama", .vocabulary = 17, .hidden = 64, .layers = 8};
  const ModelNumbers gpt2{.type = "gpt2", .vocabulary = 131, .layers = 8, .kv_heads = 4, .ffn = 64, .tied = true};
  for (const int p : {1, 2, 4})
    for (const int v : {1, 2})
      for (const std::int64_t m : {1, 3, 8})
        for (const ModelNumbers& model : {llama, small_vocabulary, gpt2})
          for (const int data : {2, 3, 8}) {
            if (v > 1 && (p == 1 || m % p != 0)) continue;
            ContractCase c{.model = model};
            c.name = fmt::format("{}_v{}_pp{}_vs{}_m{}_dp{}", model.type, model.vocabulary, p, v, m, data);
            c.pipeline = p, c.chunks = v, c.micro_batches = m, c.data = data;
            c.schedule = v > 1 ? "interleaved" : m == 3 ? "gpipe" : "1f1b";
            c.recompute = data == 3 ? "full" : "none";
            c.compute_bytes = m == 8 ? 2 : 4;
            c.overlap = m > 1;
            if (p == 2 && v == 1) c.layers = {6, 2};
            if (p == 4 && v == 1) c.layers = {1, 4, 2, 1};
            cases.push_back(std::move(c));
          }
  return cases;
}

class ZeroOrder : public ::testing::TestWithParam<ContractCase> {};

TEST_P(ZeroOrder, MoreShardingTakesNoMoreMemory) { expect_order(plan_of(GetParam())); }

// zero2 takes less than zero1 exactly where the gradients that are alive at once and a shard of all are less than all.
TEST_P(ZeroOrder, Zero2SavesWhatTheGradientsAliveAtOnceLeave) {
  ContractCase c = GetParam();
  c.zero = "zero2";
  const RunPlan plan = plan_of(c);
  const auto zero1 = stages_of(plan, ZeroPreset::kZero1), zero2 = stages_of(plan, ZeroPreset::kZero2);
  for (int rank = 0; rank < c.pipeline; ++rank) {
    std::int64_t all = 0, shard = 0;
    for (const std::int64_t unit : expected_units(c, rank)) {
      all += expected_elements(c, unit);
      for (const ExpectedBucket& bucket : expected_buckets(c, unit)) shard += bucket.owned;
    }
    const std::int64_t saved = 4 * (all - shard - expected_regions(c, rank).gradients);
    const auto stage = static_cast<std::size_t>(rank);
    EXPECT_EQ(bytes(zero1[stage]) - bytes(zero2[stage]), saved) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, ZeroOrder, ::testing::ValuesIn(grid()), [](const auto& info) { return info.param.name; });

TEST(ZeroOrders, OfTheShippedConfigurations) {
  int checked = 0;
  for (const auto& file : std::filesystem::directory_iterator(TRIDENT_SOURCE_DIR "/configs")) {
    if (file.is_directory()) continue;  // what the planner knows of hardware
    SCOPED_TRACE(file.path().filename().string());
    OptionValues values;
    TrainConfig config = load_train_config(file.path().string(), {}, values);
    const std::int64_t ranks = config.parallel.pipeline * config.parallel.tensor * config.parallel.data.value_or(2);
    config.batch.global = std::max<std::int64_t>(config.batch.global, 2 * config.batch.micro);
    const RunPlan plan = make_run_plan(config, resolve_model(config), static_cast<int>(ranks), kLarge);
    if (plan.grid.degrees().data > 1) expect_order(plan), ++checked;
  }
  EXPECT_GE(checked, 8);
}

// Tests what the start says of a choice. Where embedding and head are most of a rank, sharding more saves nothing.
TEST(ZeroOrders, TheStartNamesWhatNeedsAndSendsLess) {
  ContractCase c{.name = "", .model = {.type = "llama", .vocabulary = 131}, .pipeline = 2, .data = 2, .layers = {3, 1}};
  const auto line = [&](std::string_view zero) {
    c.zero = zero;
    return zero_line(plan_of(c)).text;
  };
  EXPECT_EQ(line("zero1"), "zero1 with 4 micro-batches: 0.13 MB sent over dp and 0.38 MB of model state per rank and step");
  for (const std::string zero : {"zero2", "shard_grad_op", "zero3"}) {
    EXPECT_EQ(line(zero), zero + " with 4 micro-batches: 0.32 MB sent over dp and 0.38 MB of model state per rank and step; zero1 "
                                 "would send 0.13 MB and hold 0.38 MB: zero1 is no worse in either");
    EXPECT_EQ(plan_of(c).notes.size(), zero == "zero2" ? 0u : 1u);
  }
  c.layers = {}, c.model.layers = 16, c.micro_batches = 8;
  EXPECT_EQ(line("zero3"), "zero3 with 8 micro-batches: 3.19 MB sent over dp and 0.70 MB of model state per rank and step; zero1 "
                           "would send 0.28 MB and hold 0.85 MB");
}

}  // namespace
}  // namespace trident::contracts
