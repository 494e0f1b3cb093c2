// A step as instructions that point to records of passes is the whole step: work and bytes add up to those of a dry step that is
// metered call by call, and what a pass does hangs on nothing but what it is a pass of.
#include "train/step_record.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/file_io.h"
#include "device/dry/dry_device.h"
#include "parallel/dry_communicator.h"
#include "tests/contracts/contract_cases.h"
#include "tests/support/layout_run.h"
#include "train/dry_run.h"
#include "train/machine.h"
#include "train/metered_device.h"
#include "train/rank_trainer.h"
#include "train/timeline_svg.h"

namespace trident::contracts {
namespace {

struct Sum {
  std::int64_t calls = 0;
  double flops = 0, bytes = 0;
};
using Sums = std::map<std::string, Sum>;

void add(Sums& sums, const PassRecord& pass) {
  for (const PassRecord::Operation& one : pass.operations) {
    Sum& sum = sums[std::string(one.name)];
    ++sum.calls, sum.flops += one.flops, sum.bytes += one.bytes;
  }
}

// Every call of a step, metered one by one: nothing is kept by instruction.
Sums metered(const RunPlan& plan, int rank) {
  DryDevice device(nullptr);
  WorkMeter meter;
  const auto measured = make_metered_device(device, meter);
  RankTrainer trainer(plan, *measured, make_dry_world(rank, plan.world_size()));
  meter.start();
  trainer.step([](std::int64_t, std::int64_t, std::span<std::int32_t>, std::span<std::int32_t>) {});
  Sums sums;
  for (const Work& work : meter.work()) sums[std::string(work.operation)] = {work.calls, work.flops, work.bytes};
  return sums;
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

void expect_record_is_the_step(const RunPlan& plan, int rank) {
  SCOPED_TRACE(fmt::format("rank {}", rank));
  const StepRecord record = record_step(plan, rank);
  const StepProgram& program = plan.step_programs[static_cast<std::size_t>(plan.grid.coordinates(rank).pipeline)];
  ASSERT_EQ(record.pass_of.size(), program.instructions.size());
  Sums sums;
  std::array<double, kNumAxes> bytes = record.rest.bytes;
  add(sums, record.rest);
  const int last_unit = plan.step_programs.back().units.back();
  std::map<PassKey, std::size_t> pass_of_key;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const PassRecord& pass = record.passes[record.pass_of[i]];
    add(sums, pass);
    for (std::size_t axis = 0; axis < bytes.size(); ++axis) bytes[axis] += pass.bytes[axis];
    // Where micro-batches are reduced one by one, a backward also adds what was reduced before to the sums, of whichever unit lay
    // there.
    if (plan.zero.grad_sync_every > 0 && instruction.is_compute() && !instruction.is_forward()) continue;
    const auto [known, is_new] = pass_of_key.emplace(key_of(program, instruction, last_unit), record.pass_of[i]);
    EXPECT_EQ(known->second, record.pass_of[i]) << to_string(instruction) << " is not the pass of its kind";
  }
  const Sums expected = metered(plan, rank);
  ASSERT_EQ(sums.size(), expected.size());
  for (const auto& [name, sum] : expected) {
    EXPECT_EQ(sums[name].calls, sum.calls) << name;
    EXPECT_NEAR(sums[name].flops, sum.flops, 1e-12 * sum.flops) << name;
    EXPECT_NEAR(sums[name].bytes, sum.bytes, 1e-12 * sum.bytes) << name;
  }
  const std::array<double, kNumAxes> sent = dry_run(plan, rank, nullptr, DryWork::kStep).bytes_sent;
  for (std::size_t axis = 0; axis < sent.size(); ++axis)
    EXPECT_NEAR(bytes[axis], sent[axis], 1e-12 * sent[axis]) << "axis " << axis;
}

RunPlan plan_of(const std::string& config, const std::vector<std::string>& settings) {
  const std::string path = TRIDENT_SOURCE_DIR "/configs/" + config;
  const TrainConfig parsed = parse_train_config(read_file(path), path, settings);
  return make_run_plan(parsed, resolve_model(parsed), 0, kTimelineMachine);
}

void expect_records_are_steps(const RunPlan& plan) {
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage)
    expect_record_is_the_step(plan, plan.grid.rank({.pipeline = stage}));
}

TEST(StepRecord, OfTheDemo) { expect_records_are_steps(plan_of("demo_2dp_4pp_4tp.json", {})); }
TEST(StepRecord, Of175BillionParameters) {
  const RunPlan plan = plan_of("gpt3_175b_tp8_pp8.json", {"batch.global=128"});
  ASSERT_EQ(plan.num_micro_batches, 8);
  expect_records_are_steps(plan);
}
TEST(StepRecord, WhatDoesNotGrowWithMicroBatchesIsTheRecord) {
  const auto passes = [](const char* global) { return record_step(plan_of("gpt3_175b_tp8_pp8.json", {global}), 0).passes.size(); };
  EXPECT_EQ(passes("batch.global=128"), passes("batch.global=1024"));
}

class StepRecordOf : public ::testing::TestWithParam<ContractCase> {};
TEST_P(StepRecordOf, EveryRank) {
  testing::LayoutRunOptions options;
  options.steps = 0;
  const RunPlan plan = testing::run_layout(config_of(GetParam()), {}, options).plan;
  for (int rank = 0; rank < plan.world_size(); ++rank) expect_record_is_the_step(plan, rank);
}
INSTANTIATE_TEST_SUITE_P(Layouts, StepRecordOf, ::testing::ValuesIn(contract_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trident::contracts
