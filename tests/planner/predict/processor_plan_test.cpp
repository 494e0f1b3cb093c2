// Tests what a plan on processors says: parts add up, a foreign machine is not taken for this one, advice is what its settings
// give.
#include <gtest/gtest.h>

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
      EXPECT_LE(plan.hfu, 1) << "nothing is faster than the fastest product";
    }
  }
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
    EXPECT_EQ(changed.seconds(), change.seconds) << settings_text(change);
    EXPECT_EQ(changed.needed_bytes(), change.bytes) << settings_text(change);
  }
  const std::string html = to_html(page_of(report));
  expect_parts(html, {"core-hours", "memory of the process", "More threads compute than there are cores", "class=\"timeline\""});
  expect_parts(html, {seconds_text(report.plan.seconds())});
  EXPECT_EQ(html.find("GPU"), html.npos);
}

}  // namespace
}  // namespace trident
