// Steps with few micro-batches written out against the same steps in full: of layouts of the search, and of configurations run dry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "planner/predict/forecast.h"
#include "planner/price/cluster.h"
#include "planner/price/cpu_rates.h"
#include "planner/price/gpu_prices.h"
#include "planner/price/program_loops.h"
#include "planner/search/layout_costs.h"
#include "tests/support/error_text.h"
#include "tests/train/large_machine.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

TrainConfig config_of(int layers, std::int64_t batch, const std::vector<std::string>& more = {}) {
  const std::string text = R"({"model": {"model_type": "gpt2", "n_embd": 256, "n_layer": )" + std::to_string(layers) +
                           R"(, "n_head": 8, "n_positions": 128, "vocab_size": 5000}, "batch": {"global": )" +
                           std::to_string(batch) + R"(, "sequence": 128}, "optimizer": {"lr": 1e-3}})";
  return parse_train_config(
      text, "a loop", plus({"run.dir=unused", "run.steps=1", "data.train=none", "precision.compute=bf16"}, more));
}

struct Shape {
  ScheduleKind schedule = ScheduleKind::k1f1b;
  int pipeline = 1, chunks = 1, micro_batches = 1;
};

// Uneven stages: 11 blocks divide by none of the pipelines.
const std::vector<Shape> kShapes = {
    {ScheduleKind::k1f1b, 1, 1, 40},       {ScheduleKind::k1f1b, 3, 1, 57},       {ScheduleKind::k1f1b, 8, 1, 101},
    {ScheduleKind::kGpipe, 4, 1, 33},      {ScheduleKind::kGpipe, 7, 1, 64},      {ScheduleKind::kInterleaved, 2, 2, 24},
    {ScheduleKind::kInterleaved, 4, 2, 64}, {ScheduleKind::kInterleaved, 3, 3, 63},
};

TEST(LoopedStep, IsTheStepWrittenOut) {
  const Cluster cluster = find_cluster(shipped_price_book(), "a100_sxm_hdr");
  const GpuPrices prices(cluster.gpu, cluster.links);
  int shorter = 0;
  for (const Shape& shape : kShapes) {
    const TrainConfig config = config_of(11, 2 * shape.micro_batches);
    LayoutCosts costs(config, resolve_model(config), kLargeMachine, nullptr, prices);
    for (const ZeroPreset zero : {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kZero3}) {
      const SearchLayout layout{.data = 2, .pipeline = shape.pipeline, .virtual_stages = shape.chunks, .schedule = shape.schedule,
                                .zero = zero};
      const LoopedStep looped = costs.looped_step(layout);
      const RecordedStep full = costs.step(layout);
      const StepPrice few = price_step(looped, prices), all = price_step(full, prices);
      const double near = 1e-11 * all.seconds;
      EXPECT_NEAR(few.seconds, all.seconds, near) << to_string(layout);
      EXPECT_NEAR(few.bubble_over_ideal, all.bubble_over_ideal, 1e-9) << to_string(layout);
      for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
        for (std::size_t part = 0; part < kNumTimeParts; ++part)
          EXPECT_NEAR(few.ranks[rank].seconds[part], all.ranks[rank].seconds[part], near)
              << to_string(layout) << ", rank " << rank << ", " << to_string(static_cast<TimePart>(part));
        if (looped.loops[rank].empty()) continue;
        ++shorter;
        EXPECT_TRUE(is_unrolled(without_receives(full.programs[rank]).program, looped.step.programs[rank], looped.loops[rank]))
            << to_string(layout) << ", rank " << rank;
      }
    }
  }
  EXPECT_GT(shorter, 90);  // loops are found, not only steps written out
}

// The search times with loops as long as the written-out step takes: stages of uneven units, odd numbers of micro-batches that no
// number of stages divides, and pipelines of more than 8, on hardware whose streams slow each other down.
TEST(LoopedStep, SecondsAreThoseWrittenOutOverAMatrix) {
  const Cluster cluster = find_cluster(shipped_price_book(), "a100_sxm_hdr");
  const GpuPrices prices(cluster.gpu, cluster.links);
  ASSERT_GT(prices.slowdown().compute, 1);
  int looped_steps = 0, steps = 0;
  for (const bool overlap : {true, false})
    for (const int turns : {7, 12})
      for (const int pipeline : {1, 2, 3, 4, 6, 9, 13, 16})
        for (const auto& [schedule, chunks] : std::vector<std::pair<ScheduleKind, int>>{{ScheduleKind::k1f1b, 1},
                                                                                        {ScheduleKind::kGpipe, 1},
                                                                                        {ScheduleKind::kInterleaved, 2},
                                                                                        {ScheduleKind::kInterleaved, 3}}) {
          // Interleaved takes whole multiples of the stages; the others get one micro-batch beside them.
          const int micro_batches = turns * pipeline + (schedule == ScheduleKind::kInterleaved ? 0 : 1);
          const TrainConfig config =
              config_of(53, 2 * micro_batches, {std::string("parallel.overlap=") + (overlap ? "true" : "false")});
          LayoutCosts costs(config, resolve_model(config), kLargeMachine, nullptr, prices);
          for (const ZeroPreset zero : {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kZero3}) {
            const SearchLayout layout{
                .data = 2, .pipeline = pipeline, .virtual_stages = chunks, .schedule = schedule, .zero = zero};
            const LoopedStep looped = costs.looped_step(layout);
            const StepPrice few = price_step(looped, prices), all = price_step(costs.step(layout), prices);
            EXPECT_NEAR(few.seconds, all.seconds, 1e-11 * all.seconds) << to_string(layout) << " of " << micro_batches;
            double off = 0;  // of any part of any rank
            for (std::size_t rank = 0; rank < all.ranks.size(); ++rank)
              for (std::size_t part = 0; part < kNumTimeParts; ++part)
                off = std::max(off, std::abs(few.ranks[rank].seconds[part] - all.ranks[rank].seconds[part]));
            EXPECT_LE(off, 1e-11 * all.seconds) << to_string(layout) << " of " << micro_batches;
            ++steps;
            if (!looped.loops.front().empty()) ++looped_steps;
          }
        }
  EXPECT_GT(looped_steps, steps / 2);
}

// CPU seconds of `step`, in milliseconds; the fastest of several, since others use this machine.
template <class Step>
double milliseconds(const Step& step, int runs) {
  double fastest = 1e9;
  for (int run = 0; run < runs; ++run) {
    const std::clock_t start = std::clock();
    step();
    if (run > 0) fastest = std::min(fastest, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return fastest;
}

// As the search times a step: built, and simulated. How many milliseconds that may take is of the processor of
// configs/cpu/cpu.json; that it takes a small part of what all micro-batches do is of every processor.
TEST(LoopedStep, OfSixtyFourStagesTakesMilliseconds) {
  const Cluster cluster = find_cluster(shipped_price_book(), "a100_sxm_hdr");
  const GpuPrices prices(cluster.gpu, cluster.links);
  const bool is_timed = TRIDENT_SLOWER == 1 && processor_name() == shipped_cpu_rates().processor;
  const TrainConfig config = config_of(128, 2 * 512), twice = config_of(256, 2 * 512);
  for (const ZeroPreset zero : {ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kZero3}) {
    LayoutCosts costs(config, resolve_model(config), kLargeMachine, nullptr, prices);
    const SearchLayout plain{.data = 2, .pipeline = 64, .zero = zero};
    const double taken = milliseconds([&] { price_step(costs.looped_step(plain), prices); }, 10);
    const double whole = milliseconds([&] { price_step(costs.step(plain), prices); }, 3);
    EXPECT_LE(taken, whole / 4) << to_string(zero) << ": of what all micro-batches take";
    if (is_timed && zero != ZeroPreset::kZero3) {
      EXPECT_LE(taken, 25) << to_string(zero);
    }
    LayoutCosts chunk_costs(twice, resolve_model(twice), kLargeMachine, nullptr, prices);
    const SearchLayout interleaved{
        .data = 2, .pipeline = 64, .virtual_stages = 4, .schedule = ScheduleKind::kInterleaved, .zero = zero};
    const double chunks = milliseconds([&] { price_step(chunk_costs.looped_step(interleaved), prices); }, 10);
    RecordProperty(std::string(to_string(zero)) + "_ms", std::to_string(taken));
    RecordProperty(std::string(to_string(zero)) + "_whole_ms", std::to_string(whole));
    RecordProperty(std::string(to_string(zero)) + "_4_chunks_ms", std::to_string(chunks));
  }
}

// The loops of a program are no others' loops: one micro-batch more, or another order, is seen.
TEST(LoopedStep, AnotherProgramIsSeen) {
  const TrainConfig config = config_of(11, 120);
  const Cluster cluster = find_cluster(shipped_price_book(), "a100_sxm_hdr");
  const GpuPrices prices(cluster.gpu, cluster.links);
  LayoutCosts costs(config, resolve_model(config), kLargeMachine, nullptr, prices);
  const SearchLayout layout{.data = 2, .pipeline = 4, .zero = ZeroPreset::kZero2};
  const LoopedStep looped = costs.looped_step(layout);
  ASSERT_FALSE(looped.loops[1].empty());
  const auto agrees = [&](const StepProgram& program) { return is_unrolled(program, looped.step.programs[1], looped.loops[1]); };
  const StepProgram all = without_receives(costs.step(layout).programs[1]).program;
  EXPECT_TRUE(agrees(all));
  EXPECT_FALSE(agrees(without_receives(costs.step(layout, 59).programs[1]).program));
  StepProgram changed = all;
  ++changed.instructions[changed.instructions.size() / 2].grad_place;
  EXPECT_FALSE(agrees(changed));
}

// A dry step of few micro-batches stands for one of many: every call of every instruction, memory, bytes and the price.
TEST(ShortDrySteps, AreWhatFullOnesAre) {
  const Cluster cluster = find_cluster(shipped_price_book(), "a100_sxm_hdr");
  const GpuPrices prices(cluster.gpu, cluster.links);
  const std::vector<std::string> variants = {"parallel.zero=zero1", "parallel.zero=zero2", "parallel.zero=zero3",
                                             "parallel.grad_sync={\"every\": 3}", "parallel.overlap=false",
                                             "recompute.policy=full"};
  for (const Shape& shape : kShapes) {
    for (const std::string& variant : variants) {
      const TrainConfig config = config_of(
          11, 2 * shape.micro_batches,
          {"parallel.data=2", "parallel.pipeline=" + std::to_string(shape.pipeline),
           "parallel.virtual_stages=" + std::to_string(shape.chunks),
           "parallel.schedule=" + std::string(to_string(shape.schedule)), variant});
      const RunPlan plan = make_run_plan(config, resolve_model(config), 0, kLargeMachine);
      const Forecast few = forecast_run(plan, prices, nullptr, DrySteps::kShort);
      const Forecast all = forecast_run(plan, prices, nullptr, DrySteps::kFull);
      const std::string what = std::string(to_string(shape.schedule)) + " of " + std::to_string(shape.pipeline) + ", " + variant;
      EXPECT_NEAR(few.price.seconds, all.price.seconds, 1e-12 * all.price.seconds) << what;
      for (std::size_t stage = 0; stage < all.stages.size(); ++stage) {
        const StepRecord &mine = few.step.records[stage], &full = all.step.records[stage];
        ASSERT_EQ(mine.pass_of.size(), full.pass_of.size()) << what;
        std::size_t differ = mine.passes.front() == full.passes.front() ? 0 : 1;
        for (std::size_t at = 0; at < full.pass_of.size(); ++at) differ += mine.pass(at) == full.pass(at) ? 0 : 1;
        EXPECT_EQ(differ, 0u) << what << ", stage " << stage;
        EXPECT_EQ(few.stages[stage].arena.total_bytes(), all.stages[stage].arena.total_bytes()) << what;
        EXPECT_EQ(few.stages[stage].logits_bytes, all.stages[stage].logits_bytes) << what;
        for (std::size_t axis = 0; axis < kNumAxes; ++axis)
          EXPECT_NEAR(few.stages[stage].bytes_sent[axis], all.stages[stage].bytes_sent[axis],
                      1e-9 * all.stages[stage].bytes_sent[axis])
              << what;
      }
    }
  }
}

}  // namespace
}  // namespace trident
