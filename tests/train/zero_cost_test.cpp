// Tests what parallel.grad_sync "auto" comes to, by the memory that is there, and that it is planned as if that had been asked for.
#include "train/run/zero_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "train/launch/prepare_run.h"
#include "train/plan/machine.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

// Two data ranks, under zero2 unless `settings` say otherwise.
TrainConfig config_of(const std::vector<std::string>& settings) {
  std::vector<std::string> all{"run.dir=unused",  "run.steps=1",   "data.train=\"unused\"", "model.preset=gpt2-124m",
                               "parallel.data=2", "batch.global=64", "batch.micro=8", "batch.sequence=64", "parallel.zero=zero2"};
  all.insert(all.end(), settings.begin(), settings.end());
  return parse_train_config("{}", "test", all);
}

MachineFacts machine_with(std::int64_t bytes_per_rank, DeviceKind device = DeviceKind::kCpu) {
  MachineFacts machine;
  machine.device = device;
  machine.memory = {{"this machine", {0, 1}, 2 * bytes_per_rank}};
  machine.notes = {"of the machine"};
  return machine;
}

RunPlan planned(const std::vector<std::string>& settings, const MachineFacts& machine) {
  const TrainConfig config = config_of(settings);
  return make_run_plan(config, resolve_model(config), 0, machine);
}

RunPlan settled(const std::vector<std::string>& settings, const MachineFacts& machine) {
  return settle_grad_sync(planned(settings, machine), machine);
}

std::int64_t largest_arena(const std::vector<DryRun>& stages) {
  std::int64_t largest = 0;
  for (const DryRun& stage : stages) largest = std::max(largest, stage.arena.total_bytes());
  return largest;
}

std::string programs_of(const RunPlan& plan) {
  std::string text;
  for (const auto* programs : {&plan.step_programs, &plan.eval_programs})
    for (const StepProgram& program : *programs) text += to_text(program);
  return text;
}

constexpr std::int64_t kPlenty = std::int64_t{1} << 40;
const std::string kAuto = "parallel.grad_sync=auto", kStep = "parallel.grad_sync=step";

// To the byte: all that a rank's arena holds must fit, not parameters, gradients and optimizer alone.
TEST(GradSyncAuto, GoesByTheWholeArena) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{}, {"parallel.pipeline=2", "parallel.zero=zero3"}, {"recompute.policy=full", "batch.micro=4"}}) {
    std::vector<std::string> automatic = layout, step = layout;
    automatic.push_back(kAuto);
    step.push_back(kStep);
    const RunPlan once = planned(step, machine_with(kPlenty)), own = planned(layout, machine_with(kPlenty));
    ASSERT_TRUE(programs_of(once) != programs_of(own));
    const std::int64_t needed = largest_arena(dry_stages_on_any(once, machine_with(kPlenty).device, DryWork::kConstruct));
    const RunPlan fits = settled(automatic, machine_with(needed)), lacks = settled(automatic, machine_with(needed - 1));
    EXPECT_EQ(fits.zero.grad_sync_every, 0);
    EXPECT_TRUE(programs_of(fits) == programs_of(once));
    EXPECT_EQ(fits.predicted_bubble, once.predicted_bubble);
    EXPECT_EQ(lacks.zero.grad_sync_every, 1);
    EXPECT_TRUE(programs_of(lacks) == programs_of(own));
    for (const RunPlan* plan : {&fits, &lacks})
      EXPECT_EQ(plan->config.parallel.grad_sync.kind, GradSync::Kind::kAuto) << "what was asked for";
    std::int64_t state = 0;
    for (const ZeroCost& cost : zero_costs(own, once.zero)) state = std::max(state, cost.memory);
    EXPECT_LT(state + (100 << 20), needed) << "most of what the test is about would not be there";
  }
}

// The data are not there: it got past the memory.
TEST(GradSyncAuto, TrainsWhateverThePresetsOwnTrains) {
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const auto prepare = [&](const std::vector<std::string>& settings, std::int64_t bytes_per_rank) {
      LaunchSite place;
      place.gpus = {"a GPU", "a GPU"};
      return prepare_run(config_of(settings), place, machine_with(bytes_per_rank, device));
    };
    const RunPlan own = planned({}, machine_with(kPlenty, device));
    const std::int64_t there = largest_arena(dry_stages_here(own, device, DryWork::kConstruct));
    EXPECT_THROW(prepare({}, there - 1), ConfigError);
    EXPECT_THROW(prepare({}, there), DataError);
    EXPECT_THROW(prepare({kStep}, there), ConfigError) << "full gradients do not fit";
    EXPECT_THROW(prepare({kAuto}, there), DataError);
    std::int64_t state = 0;
    for (const ZeroCost& cost : zero_costs(planned({}, machine_with(kPlenty)), planned({kStep}, machine_with(kPlenty)).zero))
      state = std::max(state, cost.memory);
    EXPECT_LT(state, there) << "parameters, full gradients and optimizer would fit";
  }
}

// The most that a processor's workspaces may add is in the arena that "auto" goes by: of this one, and of one that must convert
// what it multiplies.
TEST(GradSyncAuto, WhatItFindsToFitFitsAnyProcessor) {
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    const RunPlan once = planned({kStep, fmt::format("precision.compute={}", compute)}, machine_with(kPlenty));
    const std::int64_t most = largest_arena(dry_stages_on_any(once, DeviceKind::kCpu, DryWork::kConstruct));
    EXPECT_GE(most, largest_arena(dry_stages_here(once, DeviceKind::kCpu, DryWork::kConstruct))) << compute;
    Doorbell doorbell;
    CpuDevice old(doorbell, {once.threads_per_rank, std::nullopt, IsaLevel::kBaseline});
    EXPECT_GE(most, largest_arena(dry_stages(once, &old.ops(), DryWork::kConstruct))) << compute;
  }
}

TEST(GradSyncAuto, IsLeftOpenByThePlanAlone) {
  const RunPlan plan = planned({kAuto}, machine_with(kPlenty)), own = planned({}, machine_with(kPlenty));
  EXPECT_TRUE(programs_of(plan) == programs_of(own));
  EXPECT_EQ(plan.notes, own.notes);
}

// A preset that was not asked to be settled, or has nothing to settle, is left alone.
TEST(GradSyncAuto, OtherPlansStayAsTheyAre) {
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{}, {kStep}, {"parallel.grad_sync={\"every\":3}"}, {kAuto, "parallel.zero=\"zero1\""}}) {
    const RunPlan before = planned(settings, machine_with(kPlenty)), after = settled(settings, machine_with(kPlenty));
    EXPECT_TRUE(programs_of(before) == programs_of(after));
    EXPECT_EQ(before.notes, after.notes);
  }
}

// The plan notes what "auto" came to and what follows from it.
TEST(GradSyncAuto, SaysSoWhereTheReaderLooks) {
  const MachineFacts here = machine_with(kPlenty), gpus = machine_with(kPlenty, DeviceKind::kCuda);
  const std::vector<std::string> zero3{kAuto, "parallel.zero=\"zero3\"", "parallel.param_gather=\"per_use\"", "cuda.graphs=true"};
  const std::string said = "parallel.grad_sync = auto: once per step (once per step, a rank needs ";
  const std::vector<std::string> notes = settled(zero3, here).notes, own = planned(zero3, here).notes;
  ASSERT_EQ(notes.size(), own.size() + 1);
  EXPECT_EQ(notes[0].substr(0, said.size()), said) << notes[0];
  EXPECT_NE(notes[0].find(" GB, 1099.51 GB are there)"), std::string::npos) << notes[0];
  EXPECT_EQ(notes.back(), "of the machine");
  EXPECT_EQ(settled(zero3, gpus).notes.front().substr(0, said.size()), said);
  const std::string little = settled(zero3, machine_with(1'500'000'000, DeviceKind::kCuda)).notes.front();
  EXPECT_EQ(little.find("parallel.grad_sync = auto: the preset's own (once per step, a rank needs "), 0U) << little;
  EXPECT_NE(little.find(" GB, 1.50 GB are there)"), std::string::npos) << little;
}

}  // namespace
}  // namespace trident
