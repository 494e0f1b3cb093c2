// The demo's 32 ranks train what one rank trains: configs/demo_2dp_4pp_4tp.json itself, in fp32, on made-up tokens.

#include <gtest/gtest.h>

#include "core/file_io.h"
#include "support/layout_run.h"
#include "train/run/dry_run.h"

namespace trident::testing {
namespace {

void expect_thirty_two_ranks_equal_one(int steps) {
  const std::string config = read_file(TRIDENT_SOURCE_DIR "/configs/demo_2dp_4pp_4tp.json");
  // The demo's peak rate amplifies rounding within few steps of AdamW; the tolerances are stated for an ordinary one.
  const std::vector<std::string> fp32{"precision.compute=\"fp32\"", "optimizer.lr=3e-4", "lr_schedule.min_lr=3e-5"};
  std::vector<std::string> one_rank = fp32;
  one_rank.push_back("parallel=\"1DP x 1PP x 1TP\"");
  LayoutRunOptions options;
  options.steps = steps;
  const LayoutRun demo = run_layout(config, fp32, options);
  const LayoutRun one = run_layout(config, one_rank, options);
  ASSERT_EQ(demo.plan.world_size(), 32);
  ASSERT_EQ(one.plan.world_size(), 1);
  EXPECT_EQ("", compare_losses(demo, one));
  EXPECT_EQ("", compare_gradients(demo.gradients, one.gradients));
  EXPECT_EQ(demo.planned_bytes, demo.high_water);
  const std::array<double, kNumAxes> formula = step_bytes_sent(demo.plan);
  EXPECT_EQ(demo.bytes_sent, formula);
}

// The second step is the first that trains on what the optimizers of all ranks left; more of them are for `ctest -C Full`.
TEST(Demo, ThirtyTwoRanksEqualOne) { expect_thirty_two_ranks_equal_one(3); }
TEST(FullDemo, ThirtyTwoRanksEqualOneForTwentySteps) { expect_thirty_two_ranks_equal_one(20); }

}  // namespace
}  // namespace trident::testing
