#include "tensor_parallel/layer_plan.h"

#include <gtest/gtest.h>

#include "tests/support/tensor_rank.h"

namespace trident {
namespace {

TEST(LayerGeometryTest, SequenceParallelismSplitsRowsOnlyOverSeveralRanks) {
  LayerGeometry g{.sequence = 12, .micro_batch = 2, .tensor_degree = 4, .tensor_rank = 3, .sequence_parallel = true};
  EXPECT_EQ(g.local_sequence(), 3);
  EXPECT_EQ(g.position_offset(), 9);
  EXPECT_EQ(g.row_offset(), 18);
  EXPECT_EQ(g.activation_shape(5), (Shape{3, 2, 5}));
  g.sequence_parallel = false;
  EXPECT_EQ(g.local_rows(), g.full_rows());
  EXPECT_EQ(g.position_offset(), 0);
  g = {.sequence = 12, .micro_batch = 2, .sequence_parallel = true};
  EXPECT_FALSE(g.shards_sequence());
}

TEST(UnitPlanTest, RegionsGrowAlignedAndScratchIsReused) {
  testing::run_tensor_ranks(1, {}, [](testing::TensorRank& rank) {
    UnitPlan plan({.sequence = 4, .micro_batch = 1}, rank.device.ops());
    EXPECT_EQ(plan.save(DType::kF32, {3}).offset, 0);
    const RegionTensor second = plan.save(DType::kF32, {65});
    EXPECT_EQ(second.offset, kArenaAlignment);
    EXPECT_EQ(plan.region_bytes(Region::kSaved), 3 * kArenaAlignment);
    EXPECT_EQ(plan.keep(DType::kBF16, {4}).region, Region::kKept);
    for (int call = 0; call < 2; ++call) {
      const ScratchScope scope(plan.scratch_plan());
      EXPECT_EQ(plan.scratch(DType::kF32, {64}).offset, 0);
      EXPECT_EQ(plan.scratch(DType::kF32, {64}).offset, kArenaAlignment);
    }
    EXPECT_EQ(plan.region_bytes(Region::kScratch), 2 * kArenaAlignment);
    EXPECT_EQ(plan.region_bytes(Region::kRecomputed), 0);
  });
}

TEST(UnitPlanTest, RecomputePolicyDecidesWhereSavedTensorsLie) {
  testing::run_tensor_ranks(1, {}, [](testing::TensorRank& rank) {
    const auto region = [&](RecomputePolicy policy, RecomputeClass recompute) {
      return UnitPlan({.recompute = policy}, rank.device.ops()).save(DType::kF32, {1}, recompute).region;
    };
    for (const RecomputePolicy policy : {RecomputePolicy::kNone, RecomputePolicy::kSelective, RecomputePolicy::kFull})
      EXPECT_EQ(region(policy, RecomputeClass::kNever), Region::kSaved);
    EXPECT_EQ(region(RecomputePolicy::kNone, RecomputeClass::kAttention), Region::kSaved);
    EXPECT_EQ(region(RecomputePolicy::kSelective, RecomputeClass::kAttention), Region::kRecomputed);
    EXPECT_EQ(region(RecomputePolicy::kSelective, RecomputeClass::kBlock), Region::kSaved);
    EXPECT_EQ(region(RecomputePolicy::kFull, RecomputeClass::kAttention), Region::kRecomputed);
    EXPECT_EQ(region(RecomputePolicy::kFull, RecomputeClass::kBlock), Region::kRecomputed);
  });
}

}  // namespace
}  // namespace trident
