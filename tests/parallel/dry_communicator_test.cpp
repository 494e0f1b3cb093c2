#include "parallel/communicator/dry_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/check.h"
#include "device/dry/dry_device.h"

namespace trident {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class DryWorld : public ::testing::Test {
 protected:
  static TensorView integers(std::vector<std::int64_t>& values) {
    return {values.data(), DType::kI64, {static_cast<std::int64_t>(values.size())}};
  }
  DryDevice device_{nullptr};
  Stream& stream_ = device_.compute_stream();
};

TEST_F(DryWorld, AnswersAsIfAllRanksHeldTheSame) {
  const auto world = make_dry_world(2, 3);
  EXPECT_EQ(world->rank(), 2);
  EXPECT_EQ(world->size(), 3);
  std::vector<std::int64_t> x{1, -2, 3, 4, 5, 6}, third(2), all(6), single{7, 8};
  world->all_reduce(stream_, integers(x), ReduceOp::kSum);
  EXPECT_THAT(x, ElementsAre(3, -6, 9, 12, 15, 18));
  world->all_reduce(stream_, integers(x), ReduceOp::kMax);
  EXPECT_THAT(x, ElementsAre(3, -6, 9, 12, 15, 18));
  world->reduce_scatter(stream_, integers(third), integers(x), ReduceOp::kSum);
  EXPECT_THAT(third, ElementsAre(45, 54));
  world->all_gather(stream_, integers(all), integers(single));
  EXPECT_THAT(all, ElementsAre(7, 8, 7, 8, 7, 8));
  world->all_to_all(stream_, integers(all), integers(x));  // slice 2 of each
  EXPECT_THAT(all, ElementsAre(15, 18, 15, 18, 15, 18));
  world->broadcast(stream_, integers(single), 0);
  EXPECT_THAT(single, ElementsAre(7, 8));
  world->recv(stream_, integers(x), 1);
  EXPECT_THAT(x, Each(0));
  world->barrier();
}

TEST_F(DryWorld, LeavesTheMemoryOfDevicesAlone) {
  const auto world = make_dry_world(1, 4);
  const Buffer memory = device_.allocate(1 << 30, "memory");
  const TensorView whole(memory.data(), DType::kF32, {1 << 20}, memory.where()), slice = whole.range(1 << 18, 1 << 18);
  world->all_reduce(stream_, whole, ReduceOp::kSum);  // each would be a fault of the processor
  world->reduce_scatter(stream_, slice, whole, ReduceOp::kSum);
  world->all_gather(stream_, whole, slice);
  world->send(stream_, whole, 0);
  world->recv(stream_, whole, 3);
}

TEST_F(DryWorld, ChecksWhatItIsGiven) {
  const auto world = make_dry_world(1, 4);
  std::vector<std::int64_t> three(3), one(1);
  EXPECT_THROW(world->reduce_scatter(stream_, integers(one), integers(three), ReduceOp::kSum), InternalError);
  EXPECT_THROW(world->send(stream_, integers(one), 1), InternalError);
  EXPECT_THROW(world->recv(stream_, integers(one), 4), InternalError);
  EXPECT_THROW(world->broadcast(stream_, integers(one), -1), InternalError);
  EXPECT_THROW(world->group_end(), InternalError);
  EXPECT_THROW(make_dry_world(4, 4), InternalError);
}

TEST_F(DryWorld, SplitsIntoTheMembersThatItIsGiven) {
  const auto world = make_dry_world(5, 8);
  const std::vector<int> members{1, 3, 5, 7}, others{0, 2}, outside{5, 8};
  const auto group = world->split(members, "dp");
  EXPECT_EQ(group->rank(), 2);
  EXPECT_EQ(group->size(), 4);
  EXPECT_EQ(group->name(), "dp");
  EXPECT_THROW(world->split(others, "dp"), InternalError);
  EXPECT_THROW(world->split(outside, "dp"), InternalError);
}

TEST_F(DryWorld, IsCountedAsAnyOther) {
  const auto world = make_dry_world(0, 4);
  const Buffer memory = device_.allocate(1 << 20, "memory");
  const TensorView whole(memory.data(), DType::kBF16, {1 << 10}, memory.where());
  world->all_reduce(stream_, whole, ReduceOp::kSum);
  world->send(stream_, whole, 1);
  EXPECT_EQ(world->counters().total_bytes(), 2.0 * 3 / 4 * 2048 + 2048);
}

}  // namespace
}  // namespace trident
