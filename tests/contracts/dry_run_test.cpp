// A dry rank is the rank: the same entries in its arena, and it sends the same bytes, call by call.
#include "train/run/dry_run.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/contracts/contract_cases.h"
#include "tests/support/layout_run.h"

namespace trident::contracts {
namespace {

using testing::LayoutRun;
using testing::LayoutRunOptions;

std::vector<std::string> entries_of(const ArenaPlan& plan) {
  std::vector<std::string> entries;
  for (const ArenaPlan::Entry& e : plan.entries())
    entries.push_back(fmt::format("{} ({}) {}+{}", e.name, to_string(e.use), e.slot.offset, e.slot.bytes));
  return entries;
}

struct RankRun {
  std::vector<std::string> entries;
  std::array<double, kNumAxes> bytes_sent{};
};

class DryRun : public ::testing::TestWithParam<ContractCase> {};

TEST_P(DryRun, IsWhatEveryRankDoes) {
  std::map<int, RankRun> ranks;
  std::mutex mutex;
  LayoutRunOptions options;
  options.steps = 2;
  options.after_steps = [&](RankTrainer& trainer) {
    const std::lock_guard lock(mutex);
    ranks[trainer.context().rank()] = {entries_of(trainer.arena_plan()), trainer.context().bytes_sent()};
  };
  const LayoutRun run = testing::run_layout(config_of(GetParam()), {}, options);
  ASSERT_EQ(static_cast<int>(ranks.size()), GetParam().world());
  Doorbell doorbell;
  CpuDevice oracle(doorbell, {});
  for (const auto& [rank, seen] : ranks) {
    const trident::DryRun dry = dry_run(run.plan, rank, &oracle.ops(), DryWork::kStep);
    EXPECT_EQ(entries_of(dry.arena), seen.entries) << "rank " << rank;
    EXPECT_EQ(dry.arena.total_bytes(), run.high_water[static_cast<std::size_t>(rank)]) << "rank " << rank;
    EXPECT_EQ(dry.bytes_sent, seen.bytes_sent) << "rank " << rank;
  }
}

// One rank of a stage stands for all of them where traffic is predicted.
TEST_P(DryRun, RanksOfAStageSendTheSame) {
  LayoutRunOptions options;
  options.steps = 1;
  const RunPlan plan = testing::run_layout(config_of(GetParam()), {}, options).plan;
  std::vector<std::array<double, kNumAxes>> of_stage(static_cast<std::size_t>(plan.grid.degrees().pipeline));
  std::vector<bool> seen(of_stage.size());
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const auto stage = static_cast<std::size_t>(plan.grid.coordinates(rank).pipeline);
    const trident::DryRun dry = dry_run(plan, rank, nullptr, DryWork::kStep);
    if (!seen[stage]) of_stage[stage] = dry.bytes_sent;
    seen[stage] = true;
    EXPECT_EQ(dry.bytes_sent, of_stage[stage]) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DryRun, ::testing::ValuesIn(contract_cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trident::contracts
