// Tests what is said when the ranks' memory is not there: of machines together, of GPUs one by one.
#include "train/run/arena_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "parallel/shared_memory/thread_world.h"
#include "tests/support/error_text.h"
#include "tests/support/split_schedules.h"
#include "train/launch/prepare_run.h"
#include "train/plan/preflight.h"
#include "train/plan/step_flops.h"
#include "train/run/dry_run.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

constexpr double kGigabyte = 1e9;

const std::vector<std::string> kGpt2{"run.dir=unused",         "run.steps=1",     "data.train=unused",
                                     "model.preset=gpt2-124m", "batch.global=64", "batch.micro=8", "batch.sequence=64"};

RunPlan plan_of(const std::vector<std::string>& settings) {
  const TrainConfig config = parse_train_config("{}", "test", plus(kGpt2, settings));
  return make_run_plan(config, resolve_model(config), 0, {});
}

std::string refusal(const RunPlan& plan, const std::vector<ArenaNeed>& needs) {
  return error_of<ConfigError>([&] { check_arenas(plan, needs); });
}

TEST(ArenaCheck, RanksOfAMachineShareItsMemory) {
  RunPlan plan = plan_of({"parallel.data=2"});
  plan.memory = {{"this machine", {0, 1}, 200'000'000'000}};
  EXPECT_EQ(refusal(plan, {{150 * kGigabyte, 0}, {50 * kGigabyte, 0}}), "no error") << "one large rank beside a small one";
  const std::string text =
      refusal(plan, {{150 * kGigabyte, 60 * kGigabyte, 0, "most of it for block 3"}, {51 * kGigabyte, 20 * kGigabyte}});
  expect_parts(text, {"2 ranks there 201.0 GB, this machine has 200.0 GB for arenas; batch.micro = 4 would fit",
                      "batch.micro = 8: the arena of rank 0", "most of it for block 3"});
}

// Smaller micro-batches may need as much: gpipe holds all of a step's. What is named was tried.
TEST(ArenaCheck, AMicroBatchIsNamedOnlyWhenItFits) {
  const auto text_of = [](const std::string& schedule, double share) {
    RunPlan plan = plan_of({"parallel.pipeline=2", "parallel.schedule=" + schedule});
    const auto needs_of = [](const RunPlan& one) {
      return arena_needs(one, dry_stages_here(one, DeviceKind::kCpu, DryWork::kConstruct));
    };
    const std::vector<ArenaNeed> needs = needs_of(plan);
    const ArenaNeed& last = needs.back();
    plan.memory = {{"machine 1", {1}, static_cast<std::int64_t>(last.total - (1 - share) * last.activations)}};
    const auto of_micro = [&](std::int64_t micro) { return needs_of(with_micro_batch(plan, micro)); };
    try {
      check_arenas(plan, needs, of_micro);
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      const auto at = text.find("batch.micro = ", 1);
      if (at != std::string::npos) {
        const std::int64_t named = std::stoll(text.substr(at + 14));
        EXPECT_LE(of_micro(named).back().total, static_cast<double>(plan.memory.front().bytes)) << text;
        EXPECT_GT(of_micro(2 * named).back().total, static_cast<double>(plan.memory.front().bytes)) << text;
      }
      return text;
    }
    return std::string();
  };
  // Not 4: the tied gradient of the other end does not shrink.
  expect_parts(text_of("1f1b", 0.6), {"batch.micro = 2 would fit"});
  expect_parts(text_of("gpipe", 0.2), {"lower batch.sequence, set recompute.policy"});
}

TEST(ArenaCheck, AGpuIsJudgedByItself) {
  RunPlan plan = plan_of({"parallel.pipeline=2"});
  plan.memory = {{"GPU 0", {0}, 80'000'000'000}, {"GPU 1", {1}, 80'000'000'000}};
  EXPECT_EQ(refusal(plan, {{79 * kGigabyte, 0}, {79 * kGigabyte, 0}}), "no error");
  EXPECT_EQ(refusal(plan, {{20 * kGigabyte, 10 * kGigabyte}, {90 * kGigabyte, 60 * kGigabyte, 0, "most of it for block 9"}}),
            "batch.micro = 8: the arena of rank 1 (pipeline stage 1 of 2) needs 90.0 GB, 60.0 GB of it for activations (most of it "
            "for block 9), GPU 1 has 80.0 GB for arenas; "
            "batch.micro = 4 would fit, or set recompute.policy to full, give other stages more layers with parallel.layers, or "
            "take a smaller model");
}

TEST(ArenaCheck, RanksOnOneGpuAreCountedTogether) {
  RunPlan plan = plan_of({"parallel.data=4"});
  plan.memory = {{"GPU 0", {0, 1}, 80'000'000'000}, {"GPU 1", {2, 3}, 80'000'000'000}};
  const ArenaNeed fits{40 * kGigabyte, 10 * kGigabyte}, more{41 * kGigabyte, 20 * kGigabyte, 0, "most of it for it"};
  EXPECT_EQ(refusal(plan, {fits, fits, fits, fits}), "no error");
  EXPECT_EQ(refusal(plan, {fits, fits, fits, more}),
            "batch.micro = 8: the arena of rank 3 needs 41.0 GB, 20.0 GB of it for activations (most of it for it), 2 ranks there "
            "81.0 GB, GPU 1 has 80.0 GB for arenas; "
            "batch.micro = 4 would fit, or set recompute.policy to full, or take a smaller model");
}

// NCCL's communicators may have taken more, or less, than the plan expected.
TEST(ArenaCheck, WhatIsLeftOfAGpuIsWhatCounts) {
  RunPlan plan = plan_of({"parallel.data=2"});
  plan.memory = {{"GPU 0", {0, 1}, 80'000'000'000}};
  const double later = 512 << 20;
  const auto with = [](double total, double free) {
    return ArenaNeed{.total = total, .activations = total / 2, .largest = "a tensor", .free = free};
  };
  EXPECT_EQ(refusal(plan, {with(42 * kGigabyte, 84 * kGigabyte + 2 * later), with(42 * kGigabyte, 90 * kGigabyte)}), "no error");
  EXPECT_NE(refusal(plan, {with(42 * kGigabyte, 84 * kGigabyte + 1.9 * later), with(42 * kGigabyte, 90 * kGigabyte)}), "no error")
      << "the least that a rank saw";
  EXPECT_EQ(refusal(plan, {with(35 * kGigabyte, 68 * kGigabyte), with(35 * kGigabyte, 68 * kGigabyte)}),
            "batch.micro = 8: the arena of rank 0 needs 35.0 GB, 17.5 GB of it for activations (a tensor), 2 ranks there 70.0 GB, "
            "GPU 0 has 66.9 GB for arenas, 13.1 GB "
            "less than at the start, because NCCL's communicators and other libraries took them; batch.micro = 4 would fit, or set "
            "recompute.policy to full, or "
            "take a smaller model");
}

// 12 sequences of each data rank: of micro-batches up to 5 only 3 makes a number of micro-batches that both stages share.
TEST(ArenaCheck, TheMicroBatchThatFitsIsOneThatTheScheduleTakes) {
  const std::vector<std::string> settings{"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.virtual_stages=2",
                                          "batch.global=12"};
  const auto with_micro = [&](const std::string& micro) {
    std::vector<std::string> all = settings;
    all.push_back("batch.micro=" + micro);
    return plan_of(all);
  };
  RunPlan plan = with_micro("6");
  plan.memory = {{"GPU 0", {0}, 80'000'000'000}, {"GPU 1", {1}, 80'000'000'000}};
  const std::string text = refusal(plan, {{90 * kGigabyte, 60 * kGigabyte}, {90 * kGigabyte, 60 * kGigabyte}});
  expect_parts(text, {"; batch.micro = 3 would fit"});
  EXPECT_NO_THROW(with_micro("3"));
  EXPECT_THROW(with_micro("4"), ConfigError);
}

// Before anything is connected, by what their ranks need at least.
TEST(ArenaCheck, GpusAreJudgedBeforeTheyAreUsed) {
  const TrainConfig config = plan_of({"parallel.data=2"}).config;
  MachineFacts machine;
  machine.device = DeviceKind::kCuda;
  machine.memory = {{"a GPU", {0}, 79'000'000'000}, {"GPU 1", {1}, 1'000'000}};
  LaunchSite place;
  place.gpus = {"a GPU", "a GPU"};
  expect_parts(error_of<ConfigError>([&] { prepare_run(config, place, machine); }),
               {"the arena of rank 1 needs 2.", "GPU 1 has 0.0 GB"});
  machine.memory = {{"a GPU", {0}, 79'000'000'000}, {"a GPU", {1}, 19'000'000'000}};
  EXPECT_THROW(prepare_run(config, place, machine), DataError) << "it goes on to the data, which are not there";
}

// 124,439,808 parameters of 12 bytes each; frozen ones take 2, and adapters of rank 1 beside every linear layer are 0.1 % of them.
TEST(ArenaCheck, OfFrozenParametersTheWeightsAloneCount) {
  const auto refusal_at = [](std::int64_t bytes, const std::vector<std::string>& settings) {
    const TrainConfig config = plan_of(settings).config;
    return error_of<ConfigError>([&] { check_model_fits(resolve_model(config), config, bytes); });
  };
  const std::vector<std::string> lora{"adapter.type=lora", "adapter.r=1", "precision.compute=bf16"};
  EXPECT_EQ(refusal_at(255'000'000, lora), "no error");
  expect_parts(refusal_at(248'000'000, lora), {"model: 124.", "this machine has 0.2", "at most 123."});
  EXPECT_NE(refusal_at(255'000'000, {"adapter.type=lora", "adapter.r=1", "precision.compute=fp32"}), "no error");
  expect_parts(refusal_at(255'000'000, {}), {"model: 124.4M parameters need at least 1.", "at most 21.25M"});
}

// With eight ranks on two GPUs, each GPU is told what a preset would leave there.
TEST(ArenaCheck, APresetThatFitsIsNamed) {
  RunPlan plan = plan_of({"parallel.data=8", "parallel.zero=ddp"});
  plan.memory = {{"GPU 0", {0, 1, 2, 3}, 20'000'000'000}, {"GPU 1", {4, 5, 6, 7}, 20'000'000'000}};
  const std::string text = refusal(plan, std::vector<ArenaNeed>(8, {6 * kGigabyte, 0.5 * kGigabyte}));
  expect_parts(text, {"4 ranks there 24.0 GB", "alone are 22.0 GB with parallel.zero = ddp: parallel.zero = zero1 needs "});
}

TEST(ArenaCheck, EveryMachineIsJudgedByItself) {
  RunPlan plan = plan_of({"parallel.data=2"});
  plan.memory = {{"n1", {0}, 80'000'000'000}, {"n2", {1}, 20'000'000'000}};
  expect_parts(refusal(plan, {{30 * kGigabyte, 20 * kGigabyte}, {30 * kGigabyte, 20 * kGigabyte}}), {"n2 has 20.0 GB"});
}

TEST(ArenaCheck, WhatNoMicroBatchMakesFit) {
  RunPlan plan = plan_of({"parallel.data=1"});
  plan.memory = {{"GPU 0", {0}, 80'000'000'000}};
  expect_parts(refusal(plan, {{90 * kGigabyte, 5 * kGigabyte}}),
               {"; parameters, gradients and optimizer alone are 85.0 GB with parallel.zero = zero1: about 117.1M parameters of "
                "this layout would fit, or take"});
  expect_parts(refusal(plan, {{900 * kGigabyte, 890 * kGigabyte}}), {"; lower batch.sequence"});
}

// Logits that are a tenth of what is needed are worth making again in chunks; what is set already is not advised.
TEST(ArenaCheck, LogitsInChunksAreAdvisedWhereTheyAreLarge) {
  const auto text = [](const std::vector<std::string>& settings, double logits, double activations = 60) {
    RunPlan plan = plan_of(settings);
    plan.memory = {{"GPU 0", {0}, 80'000'000'000}};
    return refusal(plan,
                   {{(30 + activations) * kGigabyte, activations * kGigabyte, logits * kGigabyte, "most of it for the head"}});
  };
  const std::vector<std::string> one{"parallel.data=1"}, full{"parallel.data=1", "recompute.policy=full"};
  expect_parts(text(one, 8.9), {"; batch.micro = 4 would fit, or set recompute.policy to full, or take a smaller model"});
  expect_parts(text(one, 9.1), {"; batch.micro = 4 would fit, or set recompute.policy to full or recompute.head_chunk to 64 (9.1 "
                                "GB are logits), or take"});
  expect_parts(text(full, 9.1), {"; batch.micro = 4 would fit, or set recompute.head_chunk to 64 (9.1 GB are logits), or take"});
  expect_parts(text(full, 0), {"; batch.micro = 4 would fit, or take a smaller model"});
  expect_parts(text(full, 0, 890), {"; lower batch.sequence, or use more tensor ranks, or take"});
  expect_parts(text({"parallel.data=1", "batch.micro=32", "batch.sequence=1024"}, 40), {"recompute.head_chunk to 1024 (40.0 GB"});
  RunPlan machine = plan_of(one);
  machine.memory = {{"this machine", {0}, 100'000'000'000}};
  expect_parts(refusal(machine, {{150 * kGigabyte, 60 * kGigabyte, 40 * kGigabyte, "x"}}),
               {"recompute.head_chunk to 64 (40.0 GB are logits)"});
}

// A small vocabulary and a wide model: the norm's output, which lies with the logits, is larger than they are.
TEST(ArenaCheck, LogitsAreTheLogitsAndNotWhatLiesBesideThem) {
  const auto logits_of = [](std::vector<std::string> settings) {
    settings.insert(settings.end(), {"run.dir=\"unused\"", "run.steps=1", "data.train=\"unused\"", "batch.global=64",
                                     "batch.micro=8", "batch.sequence=64", "precision.compute=fp32"});
    const TrainConfig config = parse_train_config(
        R"({"model": {"model_type": "llama", "vocab_size": 250, "hidden_size": 1024, "num_hidden_layers": 2,
                      "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 128,
                      "max_position_embeddings": 64}})",
        "test", settings);
    const RunPlan plan = make_run_plan(config, resolve_model(config), 0, {});
    std::vector<double> logits;
    for (const ArenaNeed& need : arena_needs(plan, dry_stages(plan, nullptr, DryWork::kConstruct))) logits.push_back(need.logits);
    return logits;
  };
  constexpr double kWhole = 8 * 64 * 256 * 4;  // rows, columns of a padded vocabulary, bytes
  EXPECT_EQ(logits_of({}), std::vector<double>{kWhole});
  EXPECT_EQ(logits_of({"parallel.tensor=2"}), std::vector<double>(2, kWhole / 2));
  EXPECT_EQ(logits_of({"recompute.head_chunk=8"}), std::vector<double>{0});
  EXPECT_EQ(logits_of({"parallel.pipeline=2"}), (std::vector<double>{0, kWhole}));
  EXPECT_EQ(logits_of({"parallel.pipeline=2", "parallel.schedule=gpipe"}), (std::vector<double>{0, 8 * kWhole})) << "in flight";
}

// Ranks that each know their own need and pool, as threads; what each of them throws.
std::vector<std::string> refusals(const RunPlan& plan, const std::vector<ArenaNeed>& needs) {
  ThreadWorld world(plan.world_size(), 60.0);
  std::vector<std::string> said(needs.size());
  run_thread_ranks(world, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    CpuDevice device(world.doorbell(rank), CpuDeviceOptions{});
    const std::unique_ptr<Communicator> all = world.communicator(rank, device.progress());
    RunPlan mine = plan;
    std::erase_if(mine.memory, [&](const MemoryPool& pool) { return std::ranges::find(pool.ranks, rank) == pool.ranks.end(); });
    try {
      check_free(mine, *all, device.host_stream(), needs[r], [&] { return needs; });
    } catch (const ConfigError& error) {
      said[r] = error.what();
    }
    all->barrier();
  });
  return said;
}

TEST(ArenaCheck, RanksThatKnowOnlyTheirOwnSayTheSame) {
  RunPlan plan = plan_of({"parallel.data=4", "parallel.pipeline=3"});
  for (int node = 0; node < 4; ++node)
    plan.memory.push_back({fmt::format("n{}", node + 1), {3 * node, 3 * node + 1, 3 * node + 2}, 80'000'000'000});
  plan.memory[2].bytes = 60'000'000'000;
  std::vector<ArenaNeed> needs;
  for (int r = 0; r < 12; ++r) needs.push_back({20 * kGigabyte, 10 * kGigabyte, 0, fmt::format("most of it for {}", r)});
  EXPECT_EQ(refusals(plan, needs), std::vector<std::string>(12, ""));
  needs[7].total += 1;
  needs[7].logits = 5 * kGigabyte;
  const std::string text = refusal(plan, needs);
  expect_parts(text, {"the arena of rank 7", "n3 has 60.0 GB"});
  EXPECT_EQ(refusals(plan, needs), std::vector<std::string>(12, text));

  plan.memory = {{"this machine", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 240'000'000'000}};
  EXPECT_EQ(refusals(plan, needs), std::vector<std::string>(12, refusal(plan, needs))) << "all in one";
  plan.memory.front().bytes += 1;
  EXPECT_EQ(refusals(plan, needs), std::vector<std::string>(12, ""));
}

// Free memory counts by the rank that sees least of it.
TEST(ArenaCheck, WhatIsFreeIsAskedOfAllWhoShareIt) {
  RunPlan plan = plan_of({"parallel.pipeline=3"});
  plan.memory = {{"GPU 0", {0, 2}, 80'000'000'000}, {"GPU 1", {1}, 80'000'000'000}};
  std::vector<ArenaNeed> needs(3, {20 * kGigabyte, 10 * kGigabyte, 0, "most of it for it", 70 * kGigabyte});
  EXPECT_EQ(refusals(plan, needs), std::vector<std::string>(3, ""));
  needs[2].free = 30 * kGigabyte;
  const std::string text = refusal(plan, needs);
  expect_parts(text, {"GPU 0 has 28.9 GB"});
  EXPECT_EQ(refusals(plan, needs), std::vector<std::string>(3, text));
}

// Tests what parallel.grad_sync "auto" comes to, by the memory that is there, and that it is planned as if that had been asked for.

// Two data ranks, under zero2 unless `settings` say otherwise.
TrainConfig config_of(const std::vector<std::string>& settings) {
  return parse_train_config("{}", "test", plus(plus(kGpt2, {"parallel.data=2", "parallel.zero=zero2"}), settings));
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

// The head with chunks makes the logits in backward, but with dpo in forward, too.
TEST(FlopsTimeline, HasTheLogitsWhereTheyAreMade) {
  const auto head_flops = [](const std::vector<std::string>& more) {
    const RunPlan plan = planned(plus({"parallel.pipeline=2"}, more), machine_with(kPlenty));
    const StepTimeline timeline = flops_timeline(plan);
    std::array<double, 2> of_head{};  // forward, backward
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank)
      for (std::size_t i = 0; i < timeline.ranks[rank].size(); ++i)
        if (const Instruction& instruction = plan.step_programs[rank].instructions[i];
            instruction.is_compute() && instruction.unit == plan.model.layers + 1)
          of_head[instruction.is_forward() ? 0 : 1] += timeline.ranks[rank][i].end - timeline.ranks[rank][i].start;
    return of_head;
  };
  const auto whole = head_flops({}), chunked = head_flops({"recompute.head_chunk=8"});
  EXPECT_GT(whole[0], 0);
  EXPECT_EQ(chunked[0], 0);
  EXPECT_NEAR(chunked[1], whole[0] + whole[1], 1e-9 * chunked[1]);
  const auto judged = head_flops({"recompute.head_chunk=8", "loss.type=dpo", "data.samples=packed"});
  EXPECT_NEAR(judged[0], whole[0], 1e-9 * whole[0]);
}

// Halves of a backward take as long as the whole.
TEST(FlopsTimeline, CountsASplitBackwardOnce) {
  const auto seconds = [](const RunPlan& plan) {
    const std::vector<double> of_ranks = flops_timeline(plan).compute;
    return std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
  };
  RunPlan plan = planned({"parallel.pipeline=2", kStep}, machine_with(kPlenty));
  const double whole = seconds(plan);
  plan.step_spec.schedule = testing::gpipe_with_weights_last(2, plan.num_micro_batches);
  plan.step_spec.weight_gradient_reads.assign(static_cast<std::size_t>(num_units(plan.model)), false);
  plan.step_programs = build_step_programs(plan.step_spec);
  EXPECT_NEAR(seconds(plan), whole, 1e-9 * whole);
}

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
