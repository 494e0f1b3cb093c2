#include "pipeline/schedule/channel_check.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace trident {
namespace {

using Kind = ChannelOp::Kind;
using PlaceList = std::vector<std::pair<int, int>>;

// Two ranks; channel 0 goes from rank 0 to rank 1, channel 1 back; barrier 0 has both.
std::optional<ChannelFault> fault(const std::vector<std::vector<ChannelOp>>& ranks, int capacity) {
  return find_channel_fault(ranks, 2, {2}, capacity);
}

TEST(ChannelCheck, MatchingOrderPasses) {
  const std::vector<std::vector<ChannelOp>> ops = {
      {{Kind::kSend, 0, 7, 0}, {Kind::kReceive, 1, 8, 1}, {Kind::kBarrier, 0, 0, 2}, {Kind::kSend, 0, 9, 3}},
      {{Kind::kReceive, 0, 7, 0}, {Kind::kSend, 1, 8, 1}, {Kind::kBarrier, 0, 0, 2}, {Kind::kReceive, 0, 9, 3}}};
  for (const int capacity : {0, 1, 2}) EXPECT_FALSE(fault(ops, capacity));
}

TEST(ChannelCheck, SendsThatFaceEachOtherNeedABuffer) {
  const std::vector<std::vector<ChannelOp>> ops = {{{Kind::kSend, 0, 1, 4}, {Kind::kReceive, 1, 2, 5}},
                                                   {{Kind::kSend, 1, 2, 6}, {Kind::kReceive, 0, 1, 7}}};
  const auto at_rendezvous = fault(ops, 0);
  ASSERT_TRUE(at_rendezvous);
  EXPECT_EQ(at_rendezvous->kind, ChannelFault::Kind::kDeadlock);
  EXPECT_EQ(at_rendezvous->places, (PlaceList{{0, 4}, {1, 6}}));
  EXPECT_FALSE(fault(ops, 1));
}

TEST(ChannelCheck, CapacityIsCounted) {
  const std::vector<std::vector<ChannelOp>> ops = {{{Kind::kSend, 0, 1, 0}, {Kind::kSend, 0, 2, 1}, {Kind::kReceive, 1, 3, 2}},
                                                   {{Kind::kSend, 1, 3, 0}, {Kind::kReceive, 0, 1, 1}, {Kind::kReceive, 0, 2, 2}}};
  EXPECT_TRUE(fault(ops, 0));
  EXPECT_FALSE(fault(ops, 1));  // the second send fits once the first message is read
  const std::vector<std::vector<ChannelOp>> crossed = {{{Kind::kSend, 0, 1, 0}, {Kind::kSend, 0, 2, 1}, {Kind::kReceive, 1, 3, 2}},
                                                       {{Kind::kSend, 1, 3, 0}, {Kind::kSend, 1, 4, 1}, {Kind::kReceive, 0, 1, 2}}};
  EXPECT_TRUE(fault(crossed, 1));
}

TEST(ChannelCheck, AnotherMessageIsReportedAtItsReceiver) {
  const std::vector<std::vector<ChannelOp>> ops = {{{Kind::kSend, 0, 1, 0}}, {{Kind::kReceive, 0, 2, 3}}};
  for (const int capacity : {0, 1}) {
    const auto found = fault(ops, capacity);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, ChannelFault::Kind::kWrongMessage);
    EXPECT_EQ(found->places, (PlaceList{{1, 3}}));
  }
}

TEST(ChannelCheck, ABarrierWaitsForAll) {
  const auto found = fault({{{Kind::kBarrier, 0, 0, 0}}, {}}, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->places, (PlaceList{{0, 0}}));
}

TEST(ChannelCheck, UnreceivedMessageIsADeadlockOnlyAtRendezvous) {
  const std::vector<std::vector<ChannelOp>> ops = {{{Kind::kSend, 0, 1, 0}}, {}};
  EXPECT_TRUE(fault(ops, 0));
  EXPECT_FALSE(fault(ops, 1));
  EXPECT_THROW(fault(ops, -1), InternalError);
}

}  // namespace
}  // namespace trident
