// The record of a step, which holds equal passes once, is the step: instruction by instruction and in its sums.
#include "train/plan/step_record.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "device/dry/dry_device.h"
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
  const MachineFacts machine{.bf16_over_fp32 = 2, .description = "a test", .memory = {{"a test", {0}, std::int64_t{1} << 50}}};
  return make_run_plan(config, resolve_model(config), 0, machine);
}

// Every call of a step, metered one by one: nothing is kept by instruction.
std::vector<OperationTotal> metered(const RunPlan& plan, int rank) {
  DryDevice device(nullptr);
  WorkMeter meter;
  const auto measured = make_metered_device(device, meter);
  RankTrainer trainer(plan, *measured, make_dry_world(rank, plan.world_size()));
  meter.start();
  trainer.step([](std::int64_t, std::int64_t, const SampleSpans&) {});
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

// A dry step counts every target, on stages without a loss too, and so has its optimizer.
TEST(StepRecord, CountedTargetsLeaveEveryStageItsOperations) {
  const RunPlan plain = plan_of("demo_2dp_4pp_4tp.json", {}),
                counts = plan_of("demo_2dp_4pp_4tp.json", {"data.eod_mask_loss=true"});
  for (int stage = 0; stage < plain.grid.degrees().pipeline; ++stage) {
    const int rank = plain.grid.rank({.pipeline = stage});
    expect_totals(record_step(counts, rank, nullptr, DryWork::kStep).operations(),
                  record_step(plain, rank, nullptr, DryWork::kStep).operations());
  }
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

// The record is small because twice the micro-batches run the same passes.
TEST(StepRecord, MoreMicroBatchesBringNoNewPasses) {
  const RunPlan plan = plan_of("demo_2dp_4pp_4tp.json", {}),
                twice = plan_of("demo_2dp_4pp_4tp.json", {fmt::format("batch.global={}", 2 * plan.config.batch.global)});
  const StepRecord record = record_step(plan, 0, nullptr, DryWork::kStep), more = record_step(twice, 0, nullptr, DryWork::kStep);
  EXPECT_EQ(more.passes.size(), record.passes.size());
  EXPECT_GT(more.pass_of.size(), record.pass_of.size());
  EXPECT_LT(record.passes.size(), record.pass_of.size());
}

// These decide all of a pass: its kind; what kind of layer its unit is, and whether the first or the last of its virtual stage,
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
    if (!GetParam().tuning.empty()) continue;  // not all blocks have adapters
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
INSTANTIATE_TEST_SUITE_P(Tuned, StepRecordOf, ::testing::ValuesIn(tuned_contract_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trident::contracts
