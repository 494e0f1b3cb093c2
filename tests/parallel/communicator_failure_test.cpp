// Threads as ranks that disagree, stay away, give up or throw: what they share with other transports is failure_conformance.h's.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/check.h"
#include "parallel/shared_memory/shared_memory_communicator.h"
#include "tests/parallel/failure_conformance.h"
#include "tests/parallel/thread_ranks.h"

namespace trident::conformance {
namespace {

Failures run_failing(int ranks, double timeout, const std::function<void(RankContext&)>& body) {
  ThreadWorld world(ranks, timeout);
  return failures_of(static_cast<std::size_t>(ranks), [&](auto attempt) {
    run_thread_ranks(world, [&](int rank) {
      ThreadRank self(world, rank);
      RankContext context = self.context();
      attempt(rank, [&] { body(context); });
    });
  });
}

TensorView floats(std::vector<float>& x) { return {x.data(), DType::kF32, {static_cast<std::int64_t>(x.size())}}; }

TEST(CommunicatorFailure, ADisagreementIsReportedEvenIfOthersNeverCome) {
  const Failures failure = run_failing(4, 30, [&](RankContext& c) {
    std::vector<float> mine(8);
    if (c.world.rank() == 1) c.world.broadcast(c.compute, floats(mine), 1);
    if (c.world.rank() == 3) c.world.all_reduce(c.compute, floats(mine), ReduceOp::kSum);
  });
  EXPECT_EQ(failure.error,
            "world: rank 3 called all_reduce f32[8] as operation 1 while rank 1 called broadcast f32[8] from rank 1");
  EXPECT_EQ(failure.per_rank[0], "");
}

TEST(CommunicatorFailure, TheWatchdogNamesWhoIsMissing) {
  const Failures failure = run_failing(4, kMissingSeconds, [&](RankContext& c) {
    std::vector<float> x(8);
    c.world.barrier();
    const auto sub = c.world.split(backwards(c.world), "tp");  // group order 3, 2, 1, 0: messages speak of global ranks
    if (c.world.rank() == 1 || c.world.rank() == 2) return;
    sub->all_reduce(c.compute, floats(x), ReduceOp::kSum);
  });
  expect_parts(failure.error, {"s in all_reduce #1 over tp: ranks 2, 1 have not arrived"});
  EXPECT_TRUE(failure.error.starts_with("rank 0 waited ") || failure.error.starts_with("rank 3 waited ")) << failure.error;
}

TEST(CommunicatorFailure, TheWatchdogSeesQueueStreamsAndMessages) {
  std::vector<float> x(2000);
  const Failures queue = run_failing(2, 0.3, [&](RankContext& c) {
    if (c.world.rank() == 1) return;
    c.world.broadcast(*c.queues[0], floats(x), 0);
    c.queues[0]->synchronize();
  });
  expect_parts(queue.error, {"broadcast #1 over world: rank 1 has not arrived"});
  const Failures send = run_failing(2, 0.3, [&](RankContext& c) {
    if (c.world.rank() == 1) c.world.send(c.compute, floats(x), 0);
  });
  expect_parts(send.error, {"send #1 to rank 0 over world: rank 0 has not received it"});
  const Failures ring = run_failing(2, 0.3, [&](RankContext& c) {
    if (c.world.rank() == 0) return;
    const GroupScope group(c.world);
    c.world.send(c.compute, floats(x), 0);
    c.world.recv(c.compute, floats(x), 0);
  });
  expect_parts(ring.error, {"has not received it; recv #1 from rank 0 over world: rank 0 has not sent"});
}

TEST(CommunicatorFailure, AnExceptionOfUnknownTypeEndsTheWorldToo) {
  ThreadWorld world(2, 30);
  EXPECT_THROW(run_on_threads(world, [](RankContext& c) {
                 if (c.world.rank() == 1) throw 42;
                 c.world.barrier();
               }),
               int);
}

TEST(CommunicatorFailure, MisuseIsRefused) {
  launch_threads(1, [](RankContext& c) {
    std::vector<float> x(8);
    std::vector<std::uint8_t> bytes(8);
    const TensorView v = floats(x);
    EXPECT_THROW(c.world.all_reduce(c.compute, {bytes.data(), DType::kU8, {8}}, ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.all_reduce(c.compute, {nullptr, DType::kF32, {8}}, ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.all_reduce(c.compute, {x.data(), DType::kF32, {8}, MemoryKind::kDevice}, ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.broadcast(c.compute, v, 1), InternalError);
    EXPECT_THROW(c.world.send(c.compute, v, 0), InternalError);
    EXPECT_THROW(c.world.all_gather(c.compute, v, v.range(0, 4)), InternalError);
    EXPECT_THROW(c.world.reduce_scatter(c.compute, v.range(0, 4), v.range(1, 4), ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.all_to_all(c.compute, v, v), InternalError);
    EXPECT_THROW(c.world.group_end(), InternalError);
    const GroupScope group(c.world);
    EXPECT_THROW(c.world.barrier(), InternalError);
    EXPECT_THROW(c.world.split(all_ranks(c.world), "part"), InternalError);
    c.world.all_reduce(c.compute, v, ReduceOp::kSum);
    EXPECT_THROW(c.world.all_reduce(*c.queues[0], v, ReduceOp::kSum), InternalError);
  });
}

// Who asks for a group must be in it, and its members in the group that is split. Nobody waits for anybody.
TEST(CommunicatorFailure, GroupsOfOthersAreRefused) {
  const Failures without_me = run_failing(3, 30, [](RankContext& c) {
    if (c.world.rank() == 1) (void)c.world.split(std::vector<int>{0, 2}, "others");
  });
  expect_parts(without_me.per_rank[1], {"rank 1 of world is not among the members of the group that it asks for"});
  for (const int stranger : {-1, 3}) {
    const Failures with_stranger = run_failing(3, 30, [&](RankContext& c) {
      if (c.world.rank() == 1) (void)c.world.split(std::vector<int>{1, stranger}, "strangers");
    });
    expect_parts(with_stranger.per_rank[1], {fmt::format("rank {} of 3 ranks in world", stranger)});
  }
}

// Blocks of groups live as long as the world, so somebody who splits again and again comes to the end of the region: an error, and
// nothing is written behind it.
TEST(CommunicatorFailure, MoreGroupsThanThereIsRoomFor) {
  for (const int ranks : {2, 5}) {
    const std::uint64_t room = SharedWorld::region_bytes(ranks), most = room / GroupBlock::bytes(ranks);
    std::atomic<std::uint64_t> splits{0};
    const Failures failure = run_failing(ranks, 30, [&](RankContext& c) {
      for (std::uint64_t i = 0; i < 2 * most; ++i) {
        const auto group = c.world.split(neighbours(c.world, c.world.size()), "again");
        if (c.world.rank() == 0) ++splits;
      }
    });
    expect_parts(failure.error, {fmt::format("control blocks of all groups exceed {} bytes", room)});
    EXPECT_LE(splits, most);
    EXPECT_GE(splits, most / 2);
    for (const std::string& error : failure.per_rank) EXPECT_NE(error, "");
  }
}

FailureCase threads(int ranks) {
  return {fmt::format("{}ranks", ranks), std::vector<int>(static_cast<std::size_t>(ranks)),
          [ranks](double timeout, const std::function<void(RankContext&)>& body) { return run_failing(ranks, timeout, body); }};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorFailures, ::testing::Values(threads(2), threads(3), threads(4), threads(5)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Threads, PendingFailures, ::testing::Values(threads(2), threads(4)), name_of_case);

}  // namespace trident::conformance
