// The record of a step, which holds equal passes once, is the step: instruction by instruction and in its sums.
#include "train/plan/step_record.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/dry/dry_device.h"
#include "device/dry/dry_ops.h"
#include "parallel/communicator/dry_communicator.h"
#include "planner/bench/metered_device.h"
#include "tests/contracts/contract_cases.h"
#include "tests/support/layout_run.h"
#include "train/config/train_config.h"
#include "train/run/dry_run.h"
#include "train/run/rank_trainer.h"

namespace trident::contracts {
namespace {

RunPlan plan_of(const std::string& file, const std::vector<std::string>& settings) {
  OptionValues values;
  const TrainConfig config = load_train_config(TRIDENT_SOURCE_DIR "/configs/" + file, settings, values);
  const MachineFacts machine{.fast_bf16 = true, .description = "a test", .memory = {{"a test", {0}, std::int64_t{1} << 50}}};
  return make_run_plan(config, resolve_model(config), 0, machine);
}

// Every call of a step, metered one by one: nothing is kept by instruction.
std::vector<OperationTotal> metered(const RunPlan& plan, int rank) {
  DryDevice device(nullptr);
  WorkMeter meter;
  const auto measured = make_metered_device(device, meter);
  RankTrainer trainer(plan, *measured, make_dry_world(rank, plan.world_size()));
  meter.start();
  trainer.step([](std::int64_t, std::int64_t, std::span<std::int32_t>, std::span<std::int32_t>) {});
  std::map<std::string_view, OperationTotal> totals;
  for (const Work& work : meter.work()) totals[work.operation] = {work.operation, work.kind, work.calls, work.flops, work.bytes};
  std::vector<OperationTotal> list;
  for (const auto& [name, total] : totals) list.push_back(total);
  return list;
}

void expect_totals(const std::vector<OperationTotal>& sums, const std::vector<OperationTotal>& all) {
  ASSERT_EQ(sums.size(), all.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i].name, all[i].name);
    EXPECT_EQ(sums[i].calls, all[i].calls) << sums[i].name;
    EXPECT_NEAR(sums[i].flops, all[i].flops, 1e-12 * all[i].flops) << sums[i].name;  // sums beyond 2^53
    EXPECT_NEAR(sums[i].bytes, all[i].bytes, 1e-12 * all[i].bytes) << sums[i].name;
  }
}

void expect_same(const RunPlan& plan, int rank, DryWork work) {
  SCOPED_TRACE(::testing::Message() << "rank " << rank << (work == DryWork::kStep ? ", step" : ", evaluation"));
  const StepRecord record = record_step(plan, rank, nullptr, work);
  const StepRecord whole = record_step(plan, rank, nullptr, work, Interning::kOff);
  ASSERT_EQ(record.pass_of.size(), whole.pass_of.size());
  ASSERT_EQ(whole.passes.size(), whole.pass_of.size() + 1);
  EXPECT_EQ(record.passes.front(), whole.passes.front());
  for (std::size_t i = 0; i < record.pass_of.size(); ++i) ASSERT_EQ(record.pass(i), whole.pass(i)) << "instruction " << i;
  expect_totals(record.operations(), whole.operations());
  if (work == DryWork::kStep) expect_totals(record.operations(), metered(plan, rank));
  const std::array<double, kNumAxes> counted = dry_run(plan, rank, nullptr, work).bytes_sent;
  for (std::size_t axis = 0; axis < counted.size(); ++axis)
    EXPECT_DOUBLE_EQ(record.bytes_sent()[axis], counted[axis]) << to_string(static_cast<Axis>(axis));
}

TEST(StepRecord, IsTheWholeStepOfTheDemo) {
  const RunPlan plan = plan_of("demo_2dp_4pp_4tp.json", {});
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage) {
    expect_same(plan, plan.grid.rank({.pipeline = stage}), DryWork::kStep);
    expect_same(plan, plan.grid.rank({.pipeline = stage}), DryWork::kEvaluation);
  }
}

TEST(StepRecord, IsTheWholeStepOf175BWithEightMicroBatches) {
  const RunPlan one = plan_of("gpt3_175b_tp8_pp8.json", {});
  const RunPlan plan =
      plan_of("gpt3_175b_tp8_pp8.json", {fmt::format("batch.global={}", 8 * one.config.batch.micro * one.grid.degrees().data)});
  ASSERT_EQ(plan.num_micro_batches, 8);
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage)
    expect_same(plan, plan.grid.rank({.pipeline = stage}), DryWork::kStep);
}

// The operand of a collective is the whole one, whichever side of the call has it: what a rank of n sends follows from it.
TEST(StepRecord, CollectivesSayTheirWholeOperand) {
  const RunPlan plan = plan_of("demo_2dp_4pp_4tp.json", {"parallel.zero=zero3"});
  std::set<CommOperation> seen;
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage) {
    const StepRecord record = record_step(plan, plan.grid.rank({.pipeline = stage}), nullptr, DryWork::kStep);
    for (const PassRecord& pass : record.passes)
      for (const auto& call : pass.calls) {
        const auto* const c = std::get_if<RecordedCollective>(&call);
        if (c == nullptr || c->operation == CommOperation::kRecv || c->operation == CommOperation::kBarrier) continue;
        seen.insert(c->operation);
        const std::int64_t times = c->operation == CommOperation::kSend        ? c->size
                                   : c->operation == CommOperation::kAllReduce ? 2 * (c->size - 1)
                                                                               : c->size - 1;
        EXPECT_EQ(c->sent_bytes_times_n, times * c->operand_bytes) << to_string(c->operation) << " over " << c->group;
      }
  }
  for (const CommOperation operation :
       {CommOperation::kAllGather, CommOperation::kReduceScatter, CommOperation::kAllReduce, CommOperation::kSend})
    EXPECT_TRUE(seen.contains(operation)) << to_string(operation);
}

// What makes the record small: twice the micro-batches run the same passes.
TEST(StepRecord, MoreMicroBatchesBringNoNewPasses) {
  const RunPlan plan = plan_of("demo_2dp_4pp_4tp.json", {}),
                twice = plan_of("demo_2dp_4pp_4tp.json", {fmt::format("batch.global={}", 2 * plan.config.batch.global)});
  const StepRecord record = record_step(plan, 0, nullptr, DryWork::kStep), more = record_step(twice, 0, nullptr, DryWork::kStep);
  EXPECT_EQ(more.passes.size(), record.passes.size());
  EXPECT_GT(more.pass_of.size(), record.pass_of.size());
  EXPECT_LT(record.passes.size(), record.pass_of.size());
}

// What decides all of a pass: its kind; what kind of layer its unit is, and whether the first or the last of its virtual stage,
// which take what was received; whether gradients are overwritten; which reduction is the last.
using PassKey = std::tuple<InstructionKind, int, bool, bool, bool, bool>;
PassKey key_of(const StepProgram& program, const Instruction& it, int last_unit) {
  if (it.unit == Instruction::kNone) return {it.kind, -1, false, false, false, false};
  bool first = true, last = true;
  for (const Instruction& other : program.instructions) {
    if (!other.is_compute() || other.virtual_stage != it.virtual_stage) continue;
    first = first && other.unit >= it.unit;
    last = last && other.unit <= it.unit;
  }
  const int layer = it.unit == 0 ? 0 : it.unit == last_unit ? 2 : 1;
  const bool reduces = it.kind == InstructionKind::kReduceGradients;
  return {
      it.kind, layer, it.is_compute() && first, it.is_compute() && last, it.is_compute() && it.overwrites(), reduces && it.last()};
}

class StepRecordOf : public ::testing::TestWithParam<ContractCase> {};

TEST_P(StepRecordOf, EveryRankIsItsStep) {
  testing::LayoutRunOptions options;
  options.steps = 0;
  const RunPlan plan = testing::run_layout(config_of(GetParam()), {}, options).plan;
  const int last_unit = plan.step_programs.back().units.back();
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    expect_same(plan, rank, DryWork::kStep);
    const StepRecord record = record_step(plan, rank, nullptr, DryWork::kStep);
    const StepProgram& program = plan.step_programs[static_cast<std::size_t>(plan.grid.coordinates(rank).pipeline)];
    std::map<PassKey, std::int32_t> pass_of_key;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& it = program.instructions[i];
      // Where micro-batches are reduced one by one, a backward also adds what was reduced before, of whichever unit lay in its
      // place.
      if (plan.zero.grad_sync_every > 0 && it.is_compute() && !it.is_forward()) continue;
      const auto [known, is_new] = pass_of_key.emplace(key_of(program, it, last_unit), record.pass_of[i]);
      EXPECT_EQ(known->second, record.pass_of[i]) << to_string(it) << " is not the pass of its kind";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StepRecordOf, ::testing::ValuesIn(contract_cases()),
                         [](const auto& info) { return info.param.name; });

// A dry rank is the rank: the same entries in its arena, and it sends the same bytes, call by call.

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

// What is announced to a device, in order.
class Announcements final : public DryOps {
 public:
  Announcements() : DryOps(nullptr) {}
  std::int64_t prepare_matmul(const MatmulShape& shape) override {
    products.push_back(text(shape));
    return DryOps::prepare_matmul(shape);
  }
  PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue epilogue) override {
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

// What a rank's step multiplies and communicates, a line for each instruction.
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

}  // namespace
}  // namespace trident::contracts
