// A dry rank is the rank: the same entries in its arena, and it sends the same bytes, call by call.
#include "train/run/dry_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/dry/dry_ops.h"
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

// ---- one rank of a stage stands for all: in its arena, its collectives and its products

// Records what is announced to a device, in order.
class Announcements final : public DryOps {
 public:
  Announcements() : DryOps(nullptr) {}
  std::int64_t prepare_matmul(const MatmulShape& shape) override {
    products.push_back(text(shape));
    return DryOps::prepare_matmul(shape);
  }
  PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t) override {
    products.push_back(fmt::format("{} and {}", text(shape), static_cast<int>(epilogue)));
    return {DryOps::prepare_matmul(shape), false};
  }
  std::int64_t attention_workspace(const AttentionShape& s) override {
    products.push_back(text(s));
    return DryOps::attention_workspace(s);
  }

  static std::string text(const MatmulShape& s) {
    return fmt::format("{}x{}x{} {}{} {}->{} {}", s.m, s.n, s.k, static_cast<int>(s.transpose_a), static_cast<int>(s.transpose_b),
                       to_string(s.in), to_string(s.out), static_cast<int>(s.accumulate));
  }
  static std::string text(const AttentionShape& s) {
    return fmt::format("attention {} {}/{} {}+{} {}+{} x {} {} {} {}", s.batch, s.query_heads, s.kv_heads, s.query_offset,
                       s.query_length, s.key_offset, s.key_length, s.head_dim, s.scale, s.causal, to_string(s.dtype));
  }

  std::vector<std::string> products;
};

// Returns what a rank's step multiplies and communicates, a line for each instruction.
std::vector<std::string> calls_of(const StepRecord& record) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < record.pass_of.size(); ++i) {
    std::string line;
    for (const auto& call : record.pass(i).calls) {
      if (const auto* const c = std::get_if<RecordedCollective>(&call)) {
        line += fmt::format("{} over {} of {}: {} {}; ", to_string(c->operation), c->group, c->size, to_string(c->dtype),
                            c->operand_bytes);
      } else if (const auto& o = std::get<RecordedOperation>(call); const auto* m = std::get_if<MatmulShape>(&o.shape)) {
        line += fmt::format("{} {}; ", o.name, Announcements::text(*m));
      } else if (const auto* a = std::get_if<AttentionShape>(&o.shape)) {
        line += fmt::format("{} {}; ", o.name, Announcements::text(*a));
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

struct RankPlan {
  std::vector<std::string> arena, announced, calls;
};

RankPlan plan_of_rank(const RunPlan& plan, int rank) {
  Announcements oracle;
  const ArenaPlan arena = dry_run(plan, rank, &oracle, DryWork::kConstruct).arena;
  RankPlan seen{entries_of(arena), oracle.products, {}};
  seen.calls = calls_of(record_step(plan, rank, &oracle, DryWork::kStep));
  return seen;
}

class RanksOfAStage : public ::testing::TestWithParam<ContractCase> {};

TEST_P(RanksOfAStage, AreEqualInArenaCollectivesAndProducts) {
  LayoutRunOptions options;
  options.steps = 0;
  const RunPlan plan = testing::run_layout(config_of(GetParam()), {}, options).plan;
  std::vector<RankPlan> first(static_cast<std::size_t>(plan.grid.degrees().pipeline));
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const RankPlan seen = plan_of_rank(plan, rank);
    RankPlan& other = first[static_cast<std::size_t>(plan.grid.coordinates(rank).pipeline)];
    if (other.arena.empty()) other = seen;
    EXPECT_FALSE(seen.announced.empty());
    EXPECT_EQ(seen.arena, other.arena) << "rank " << rank;
    EXPECT_EQ(seen.announced, other.announced) << "rank " << rank;
    EXPECT_EQ(seen.calls, other.calls) << "rank " << rank;
  }
  if (first.size() > 1) {
    EXPECT_NE(first.front().calls, first.back().calls) << "the embedding and the head are not told apart";
  }
}

// Beyond those of the other contracts: twelve ranks, a degree that divides nothing evenly.
std::vector<ContractCase> cases_of_stages() {
  std::vector<ContractCase> cases = contract_cases();
  std::ranges::copy(tuned_contract_cases(), std::back_inserter(cases));
  const ModelNumbers llama{.type = "llama"}, uneven{.type = "gpt2", .vocabulary = 131, .layers = 5, .kv_heads = 4, .ffn = 64,
                                                    .tied = true},
      olmo2{.type = "olmo2"};
  cases.push_back({.name = "dp3_pp2_tp2_sp_zero3", .model = llama, .tensor = 2, .pipeline = 2, .data = 3,
                   .sequence_parallel = true, .zero = "zero3"});
  cases.push_back({.name = "dp3_pp2_tp2_zero2_uneven_tied", .model = uneven, .tensor = 2, .pipeline = 2, .data = 3,
                   .zero = "zero2", .schedule = "gpipe", .layers = {2, 3}});
  cases.push_back({.name = "dp3_tp4_olmo2_zero1", .model = olmo2, .tensor = 4, .data = 3});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layouts, RanksOfAStage, ::testing::ValuesIn(cases_of_stages()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Layouts, DryRun, ::testing::ValuesIn(contract_cases()), [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Tuned, DryRun, ::testing::ValuesIn(tuned_contract_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trident::contracts
