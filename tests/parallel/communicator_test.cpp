#include "parallel/communicator/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "parallel/communicator/status_board.h"
#include "tests/parallel/thread_ranks.h"

namespace trident::conformance {
namespace {

std::size_t index(CommOperation operation) { return static_cast<std::size_t>(operation); }

// 3 ranks and counts that 3 does not divide: per-rank volumes are fractions, their sums exact integers.
TEST(CommunicatorBase, CountsAlgorithmicBytes) {
  constexpr int n = 3;
  std::mutex mutex;
  CommCounters sum;
  launch_threads(n, [&](RankContext& c) {
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
    const CommCounters& mine = c.world.counters();
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

TEST(CommunicatorBase, GroupsCountForThemselvesAndResetToZero) {
  launch_threads(2, [](RankContext& c) {
    Values x(DType::kF64, 10);
    const auto child = c.world.split(all_ranks(c.world), "child");
    child->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    EXPECT_EQ(child->counters().total_bytes(), 80);
    EXPECT_EQ(c.world.counters().total_bytes(), 0);
    child->reset_counters();
    EXPECT_EQ(child->counters().total_bytes(), 0);
    EXPECT_EQ(child->counters().group_size, 2);
    const auto alone = c.world.split(neighbours(c.world, 1), "alone");
    alone->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    EXPECT_EQ(alone->counters().total_bytes(), 0);
  });
}

// Equal where ranks called the same in the same order, and of every word of a call.
TEST(CommunicatorBase, HistoryTellsCallsApart) {
  launch_threads(2, [&](RankContext& c) {
    Values x(DType::kF32, 8), y(DType::kF64, 8);
    std::vector<std::uint32_t> seen{c.world.history()};
    const auto now = [&](const char* what) {
      seen.push_back(c.world.history());
      EXPECT_EQ(std::count(seen.begin(), seen.end(), seen.back()), 1) << what;
    };
    const auto after = [&](auto call) {  // on a communicator of its own
      const auto other = c.world.split(all_ranks(c.world), "other");
      call(*other);
      return other->history();
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
TEST(CommunicatorBase, ChecksCanBeSwitched) {
  for (const CollectiveChecks checks : {CollectiveChecks::kOn, CollectiveChecks::kOff}) {
    ThreadWorld world(2, 30);
    std::string error;
    try {
      run_thread_ranks(world, [&](int rank) {
        ThreadRank self(world, rank);
        self.communicator->set_checks(checks);
        const auto checked = self.communicator->split(std::vector<int>{0, 1}, "dp");
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

// A board is told of every operation that its rank enters, in groups split off as well; numbers count one kind in one group.
TEST(CommunicatorBase, TheBoardKnowsWhatWasEntered) {
  launch_threads(2, [](RankContext& c) {
    StatusBoard board;
    c.world.report_to(&board);
    const auto group = c.world.split(all_ranks(c.world), "dp");
    c.world.report_to(nullptr);
    Values x(DType::kF32, 4);
    const auto expect = [&](std::string_view communicator, std::string_view operation, std::uint64_t sequence) {
      const RankStatus status = board.read();
      EXPECT_EQ(field_text(status.communicator), communicator);
      EXPECT_EQ(field_text(status.operation), operation);
      EXPECT_EQ(status.sequence, sequence);
    };
    group->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    group->barrier();
    expect("dp", "barrier", 1);
    group->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    expect("dp", "all_reduce", 2);
    c.world.barrier();
    expect("dp", "all_reduce", 2);
  });
}

// What no transport may take; each is told before anything moves.
TEST(CommunicatorBase, GroupScopesHoldNoBarriers) {
  launch_threads(2, [](RankContext& c) {
    c.world.group_begin();
    EXPECT_THROW(c.world.barrier(), InternalError);
    EXPECT_THROW(c.world.split(all_ranks(c.world), "dp"), InternalError);
    c.world.group_end();
    EXPECT_THROW(c.world.group_end(), InternalError);
    c.world.barrier();
  });
}

}  // namespace
}  // namespace trident::conformance
