// Tests what a plan on processors says: parts add up, a foreign machine is not taken for this one, advice is what its settings
// give.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/number_text.h"
#include "planner/predict/cluster_report.h"
#include "planner/predict/plan_page.h"
#include "planner/price/cpu_rates.h"
#include "tests/support/error_text.h"
#include "tests/train/plan_fixture.h"

namespace trident {
namespace {

using testing::demo;
using testing::layouts;
using testing::Settings;

CpuRates rates_of(int cores) {
  CpuRates rates = shipped_cpu_rates();
  rates.cores = cores;
  return rates;
}

TEST(ProcessorPlan, PartsAddUpWhetherCoresAreSharedOrNot) {
  for (const int cores : {2, 64}) {
    const PlanHardware hardware = hardware_of(rates_of(cores));
    for (const Settings& settings : layouts()) {
      Settings one_thread = settings;
      one_thread.emplace_back("run.threads_per_rank=1");
      const ClusterForecast plan = plan_on(hardware, demo(one_thread), 0);
      ASSERT_TRUE(plan.process.has_value());
      EXPECT_EQ(plan.process->shares_cores, plan.plan.world_size() > cores);
      EXPECT_NEAR(plan.parts.total(), plan.seconds(), 1e-9 * plan.seconds());
      EXPECT_GT(plan.seconds(), 0);
      double arenas = 0;
      for (const RankMemory& memory : plan.memory) {
        arenas += static_cast<double>(memory.total()) * plan.plan.world_size() / static_cast<double>(plan.memory.size());
        EXPECT_EQ(memory.all_of(Certainty::kExact), memory.total()) << "libraries are asked for their workspaces";
      }
      EXPECT_EQ(arenas, plan.process->arena_bytes);
      EXPECT_GT(plan.process->resident_bytes, arenas);
      EXPECT_GT(plan.mfu, 0);
      const double peak = rates_of(cores).peak(plan.plan.multiplied) * std::min(plan.plan.world_size(), cores);
      EXPECT_DOUBLE_EQ(plan.mfu, plan.model_flops / plan.seconds() / peak) << "as trident train counts it";
      EXPECT_LE(plan.hfu, 1) << "nothing is faster than the instruction";
    }
  }
}

// Ranks that wait for each other leave cores idle, shared or not: a step takes more than its processor time over the cores.
TEST(ProcessorPlan, StagesThatShareCoresWaitForEachOther) {
  const auto step = [](int cores, const std::string& micro_batches) {
    const Settings settings{"parallel=1DP x 4PP", "parallel.sequence_parallel=false", "parallel.schedule=1f1b", "batch.micro=1",
                            "batch.global=" + micro_batches, "run.threads_per_rank=1"};
    return plan_on(hardware_of(rates_of(cores)), demo(settings), 0);
  };
  const ClusterForecast one = step(1, "2"), two = step(2, "2"), four = step(4, "2"), many = step(2, "32");
  EXPECT_NEAR(one.seconds(), one.process->cpu_seconds, 0.02 * one.seconds()) << "one core is never idle";
  EXPECT_GT(two.seconds(), 1.2 * two.process->cpu_seconds / 2);
  EXPECT_GE(two.seconds(), 0.98 * four.seconds()) << "more cores than two do not slow a step down";
  EXPECT_NEAR(two.parts[TimePart::kBubble], two.seconds() - two.process->cpu_seconds / 2, 1e-9);
  EXPECT_LT(many.parts[TimePart::kBubble] / many.seconds(), 0.8 * two.parts[TimePart::kBubble] / two.seconds());
}

TEST(ProcessorPlan, TheProcessHasRoomForWhatItSaves) {
  const PlanHardware hardware = hardware_of(rates_of(2));
  const Settings one{"parallel=1DP", "parallel.sequence_parallel=false", "run.threads_per_rank=1"};
  const auto process = [&](const std::string& every) {
    Settings settings = one;
    settings.push_back("checkpoint.every=" + every);
    return *plan_on(hardware, demo(settings), 0).process;
  };
  const ProcessPlan none = process("0"), at_end = process("end"), on_the_way = process("2");
  EXPECT_EQ(none.staging_bytes, 0);
  EXPECT_GT(at_end.staging_bytes, 0);
  EXPECT_GE(on_the_way.staging_bytes, at_end.staging_bytes);
  for (const ProcessPlan& plan : {at_end, on_the_way}) {
    EXPECT_EQ(plan.arena_bytes, none.arena_bytes);
    EXPECT_EQ(plan.resident_bytes, none.resident_bytes + plan.staging_bytes);
  }
  const ClusterReport report = report_on(hardware, demo(one), 0, 0);
  expect_parts(details_text(report, std::string::npos),
               {" of arenas, ", " through which checkpoints go to the disk (checkpoint.staging), "});
}

// Keys that attention does not see are no FLOPs of the model, so that no share of the peak is above all of it.
TEST(ProcessorPlan, MfuCountsWhatTokensSee) {
  const PlanHardware hardware = hardware_of(rates_of(2));
  const Settings whole{"run.threads_per_rank=1"};
  Settings documents = whole;
  documents.insert(documents.end(), {"data.reset_attention_mask=true", "data.eod=0", "data.mean_document=19"});
  const ClusterReport full = report_on(hardware, demo(whole), 0, 0), masked = report_on(hardware, demo(documents), 0, 0);
  const double per_token = 12.0 * 8 * (8 * 32) * (256 - 10);  // 8 layers, 8 heads of 32; 10 keys are seen of 256
  EXPECT_NEAR(full.plan.model_flops - masked.plan.model_flops,
              static_cast<double>(full.plan.plan.tokens_per_step()) * per_token, 1e-9 * full.plan.model_flops);
  EXPECT_LE(masked.plan.mfu, 1);
  expect_parts(mfu_formula(full), {"12 x layers x sequence x query width per token, attention in full"});
  expect_parts(mfu_formula(masked), {"12 x layers x keys that a token sees x query width per token)"});
}

// Threads per rank are those of the profile's machine, whatever this one has.
TEST(ProcessorPlan, AForeignMachineHasItsOwnCoresAndUnknownMemory) {
  CpuRates rates = rates_of(48);
  rates.processor = "of somebody else";
  const PlanHardware hardware = hardware_of(rates);
  EXPECT_EQ(hardware.device_bytes, 0);
  EXPECT_FALSE(hardware.band);
  const Settings four{"parallel=4DP", "parallel.sequence_parallel=false", "batch.global=16", "run.threads_per_rank=auto"};
  const ClusterForecast plan = plan_on(hardware, demo(four), 0);
  EXPECT_EQ(plan.plan.threads_per_rank, 12);
  EXPECT_DOUBLE_EQ(plan.peak_flops, 48 * rates.peak(plan.plan.multiplied)) << "of every thread";
  EXPECT_TRUE(plan.fits);
  const std::string text = verdict_text(report_on(hardware, demo({"run.threads_per_rank=1"}), 0, 0));
  expect_parts(text, {"; how much that machine has is not known\n", "(no band)"});
  std::erase_if(rates.products, [](const ProductTimes& product) { return product.in == DType::kBF16; });
  rates.bf16_over_fp32.reset();
  EXPECT_EQ(hardware_of(rates).machine.fast_bf16(), false) << "nothing of bf16 was measured there";
}

TEST(ProcessorPlan, WhatTheMachineHasNotDoesNotFit) {
  PlanHardware hardware = hardware_of(rates_of(2));
  hardware.device_bytes = 1e6;
  const ClusterReport report = report_on(hardware, demo(), 0, 0);
  EXPECT_FALSE(report.plan.fits);
  EXPECT_EQ(report.plan.limit.limit, PlanLimit::kMemory);
  expect_parts(report.plan.limit.why, {"the process needs "});
  EXPECT_TRUE(verdict_text(report).starts_with("it does not fit: the process of 32 ranks takes ")) << verdict_text(report);
}

TEST(ProcessorPlan, AdviceIsWhatItsSettingsGive) {
  const PlanHardware hardware = hardware_of(rates_of(2));
  const ClusterReport report = report_on(hardware, demo({"recompute.policy=full"}), 0, 0);
  ASSERT_FALSE(report.advice.empty());
  for (const PricedChange& change : report.advice) {
    Settings settings{"recompute.policy=full"};
    settings.insert(settings.end(), change.settings.begin(), change.settings.end());
    const ClusterForecast changed = plan_on(hardware, demo(settings), 0);
    EXPECT_EQ(changed.seconds(), change.seconds) << settings_text(change.settings);
    EXPECT_EQ(changed.needed_bytes(), change.bytes) << settings_text(change.settings);
  }
  const std::string html = to_html(page_of(report));
  expect_parts(html, {"core-hours", "memory of the process", "More threads compute than there are cores", "class=\"timeline\""});
  expect_parts(html, {seconds_text(report.plan.seconds())});
  EXPECT_EQ(html.find("GPU"), html.npos);
}

}  // namespace
}  // namespace trident
