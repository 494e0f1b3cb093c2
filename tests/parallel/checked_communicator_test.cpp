#include "parallel/checked_communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/check.h"
#include "tests/parallel/thread_ranks.h"

namespace trident::conformance {
namespace {

std::size_t index(CommOperation operation) { return static_cast<std::size_t>(operation); }

// 3 ranks and counts that 3 does not divide: per-rank volumes are fractions, their sums exact integers.
TEST(CheckedCommunicator, CountsAlgorithmicBytes) {
  constexpr int n = 3;
  std::mutex mutex;
  CommCounters sum;
  launch_checked_threads(n, [&](RankContext& c) {
    Values x(DType::kF32, 5), slice(DType::kBF16, 7), whole(DType::kBF16, n * 7), other(DType::kBF16, n * 7);
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kMax);
    c.world.reduce_scatter(c.compute, slice.view(), whole.view(), ReduceOp::kSum);
    c.world.all_gather(c.compute, whole.view(), slice.view());
    c.world.broadcast(c.compute, x.view(), 1);
    c.world.all_to_all(c.compute, other.view(), whole.view());
    c.world.barrier();
    if (c.world.rank() == 0) c.world.send(c.compute, x.view(), 2);
    if (c.world.rank() == 2) c.world.recv(c.compute, x.view(), 0);
    const CommCounters& mine = counters_of(c.world);
    EXPECT_EQ(mine.group_size, n);
    EXPECT_EQ(mine.calls[index(CommOperation::kAllReduce)], 2);
    EXPECT_DOUBLE_EQ(mine.bytes[index(CommOperation::kAllReduce)], 2 * 2.0 * 2 / 3 * 20);
    EXPECT_DOUBLE_EQ(mine.bytes[index(CommOperation::kSend)], c.world.rank() == 0 ? 20 : 0);
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < kNumCommOperations; ++i) {
      sum.calls[i] += mine.calls[i];
      sum.bytes_times_n[i] += mine.bytes_times_n[i];
    }
  });
  const auto summed = [&](CommOperation operation) {
    EXPECT_EQ(sum.bytes_times_n[index(operation)] % n, 0);
    return sum.bytes_times_n[index(operation)] / n;
  };
  EXPECT_EQ(summed(CommOperation::kAllReduce), 2 * 2 * (n - 1) * 20);
  EXPECT_EQ(summed(CommOperation::kReduceScatter), (n - 1) * n * 7 * 2);
  EXPECT_EQ(summed(CommOperation::kAllGather), (n - 1) * n * 7 * 2);
  EXPECT_EQ(summed(CommOperation::kBroadcast), (n - 1) * 20);
  EXPECT_EQ(summed(CommOperation::kAllToAll), (n - 1) * n * 7 * 2);
  EXPECT_EQ(summed(CommOperation::kSend), 20);
  EXPECT_EQ(summed(CommOperation::kRecv), 0);
  EXPECT_EQ(summed(CommOperation::kBarrier), 0);
  EXPECT_EQ(sum.calls[index(CommOperation::kRecv)], 1);
  EXPECT_EQ(sum.calls[index(CommOperation::kBarrier)], 3);
}

TEST(CheckedCommunicator, GroupsCountForThemselvesAndResetToZero) {
  launch_checked_threads(2, [](RankContext& c) {
    Values x(DType::kF64, 10);
    const auto child = c.world.split(all_ranks(c.world), "child");
    child->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    EXPECT_EQ(counters_of(*child).total_bytes(), 80);
    EXPECT_EQ(counters_of(c.world).total_bytes(), 0);
    reset_counters(*child);
    EXPECT_EQ(counters_of(*child).total_bytes(), 0);
    EXPECT_EQ(counters_of(*child).group_size, 2);
    const auto alone = c.world.split(neighbours(c.world, 1), "alone");
    alone->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    EXPECT_EQ(counters_of(*alone).total_bytes(), 0);
  });
}

TEST(CheckedCommunicator, OnlyCheckedCommunicatorsCount) {
  launch_threads(1, [](RankContext& c) {
    EXPECT_THROW(counters_of(c.world), InternalError);
    EXPECT_THROW(reset_counters(c.world), InternalError);
  });
}

// Equal where ranks called the same in the same order, and of every word of a call.
TEST(CheckedCommunicator, HistoryTellsCallsApart) {
  launch_checked_threads(2, [&](RankContext& c) {
    Values x(DType::kF32, 8), y(DType::kF64, 8);
    std::vector<std::uint32_t> seen{history_of(c.world)};
    const auto now = [&](const char* what) {
      seen.push_back(history_of(c.world));
      EXPECT_EQ(std::count(seen.begin(), seen.end(), seen.back()), 1) << what;
    };
    const auto after = [&](auto call) {  // on a communicator of its own
      const auto other = make_checked(c.world.split(all_ranks(c.world), "other"), CollectiveChecks::kOn);
      call(*other);
      return history_of(*other);
    };
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    now("a call");
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    now("again");
    const std::uint32_t sum = after([&](Communicator& g) { g.all_reduce(c.compute, x.view(), ReduceOp::kSum); });
    EXPECT_EQ(sum, after([&](Communicator& g) { g.all_reduce(c.compute, x.view(), ReduceOp::kSum); }));
    EXPECT_NE(sum, after([&](Communicator& g) { g.all_reduce(c.compute, x.view(), ReduceOp::kMax); }));
    EXPECT_NE(sum, after([&](Communicator& g) { g.all_reduce(c.compute, y.view(), ReduceOp::kSum); }));
    EXPECT_NE(sum, after([&](Communicator& g) { g.all_reduce(c.compute, x.range(0, 7), ReduceOp::kSum); }));
    EXPECT_NE(after([&](Communicator& g) { g.broadcast(c.compute, x.view(), 0); }),
              after([&](Communicator& g) { g.broadcast(c.compute, x.view(), 1); }));
  });
}

// Two ranks that call different reductions of the same size: compared or not, as the switch says.
TEST(CheckedCommunicator, ChecksCanBeSwitched) {
  for (const CollectiveChecks checks : {CollectiveChecks::kOn, CollectiveChecks::kOff}) {
    ThreadWorld world(2, 30);
    std::string error;
    try {
      run_thread_ranks(world, [&](int rank) {
        ThreadRank self(world, rank);
        const auto checked = make_checked(std::move(self.communicator), checks)->split(std::vector<int>{0, 1}, "dp");
        Values x(DType::kF32, 4);
        checked->all_reduce(self.compute, x.view(), rank == 0 ? ReduceOp::kSum : ReduceOp::kMax);
      });
    } catch (const CommunicationError& e) {
      error = e.what();
    }
    EXPECT_EQ(error, checks == CollectiveChecks::kOff
                         ? ""
                         : "dp: rank 1 called all_reduce(max) f32[4] as operation 1 while rank 0 called all_reduce f32[4]");
  }
}

}  // namespace
}  // namespace trident::conformance
