#include "infer/generate/generate_times.h"
#include "tests/support/error_text.h"

#include <gtest/gtest.h>

#include <string>

namespace trident {
namespace {

// Steps that read 1000 bytes of weights and 10 of each position; a prompt of t tokens takes 100 t + 7 + 4 t (t + 1) / 2 FLOPs.
GenerateTimes some_times() {
  GenerateTimes times;
  times.step_weight_bytes = 1000;
  times.cache_bytes_per_position = 10;
  times.flops_per_token = 100;
  times.flops_per_prompt = 7;
  times.flops_per_pair = 4;
  times.passes = {
      {.is_prompt = true, .seconds = 2, .cpu_seconds = 1, .tokens = 3, .machine_rate = 662, .machine_cpu_rate = 993},
      {.seconds = 1, .cpu_seconds = 0.5, .tokens = 2, .positions = 100, .machine_rate = 1000, .machine_cpu_rate = 8000},
      {.seconds = 4, .cpu_seconds = 1, .tokens = 2, .positions = 200, .machine_rate = 1500, .machine_cpu_rate = 6000},
      {.seconds = 2, .cpu_seconds = 2, .tokens = 1, .positions = 300, .machine_rate = 8000, .machine_cpu_rate = 8000},
  };
  return times;
}

TEST(GenerateTimes, SumUpPromptsByTheirFlops) {
  const PassSummary prompts = summarize_prompts(some_times());
  EXPECT_EQ(prompts.passes, 1);
  EXPECT_EQ(prompts.tokens, 3);
  EXPECT_EQ(prompts.work, 331);
  EXPECT_EQ(prompts.tokens_per_second, 1.5);
  EXPECT_EQ(prompts.rate, 165.5);
  EXPECT_EQ(prompts.share, 0.25);
  EXPECT_DOUBLE_EQ(prompts.cpu_share, 331.0 / 993);
}

TEST(GenerateTimes, SumUpStepsByMediansAndPairEachWithTheRateBesideIt) {
  const PassSummary steps = summarize_steps(some_times());
  EXPECT_EQ(steps.passes, 3);
  EXPECT_EQ(steps.tokens, 2);
  EXPECT_EQ(steps.seconds, 2);
  EXPECT_EQ(steps.cpu_seconds, 1);
  EXPECT_EQ(steps.tokens_per_second, 0.5);
  EXPECT_EQ(steps.work, 3000);             // of 2000, 3000, 4000
  EXPECT_EQ(steps.rate, 2000);             // of 2000, 750, 2000
  EXPECT_EQ(steps.machine_rate, 1500);     // of 1000, 1500, 8000
  EXPECT_EQ(steps.share, 0.5);             // of 2, 0.5, 0.25
  EXPECT_EQ(steps.cpu_share, 0.5);         // of 0.5, 0.5, 0.25
}

TEST(GenerateTimes, SayNothingOfAMachineThatWasNotMeasured) {
  GenerateTimes times = some_times();
  const std::string measured = to_text(times);
  expect_parts(measured, {"25 % of the 0.0 GFLOP/s that products reach", "50 % of the 0.0 GB/s at which memory is read"});
  EXPECT_EQ(to_json(times).find("steps")->find("share")->as_number(), 0.5);
  for (PassTime& pass : times.passes) pass.machine_rate = pass.machine_cpu_rate = 0;
  EXPECT_EQ(to_text(times).find('%'), std::string::npos) << to_text(times);
  EXPECT_EQ(to_json(times).find("steps")->find("share"), nullptr);
  EXPECT_EQ(to_json(times).find("prompts")->find("flops")->as_number(), 331);
  times.passes.resize(1);
  EXPECT_EQ(to_text(times).find("steps"), std::string::npos);
}

}  // namespace
}  // namespace trident
