#include "parallel/communicator/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/tsan_announce.h"
#include "device/dry/dry_device.h"
#include "parallel/communicator/dry_communicator.h"
#include "parallel/communicator/status_board.h"
#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/random_program.h"
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
    EXPECT_EQ(mine.bytes_times_n[index(CommOperation::kAllReduce)], 2 * 2 * 2 * 20);
    EXPECT_EQ(mine.bytes_times_n[index(CommOperation::kSend)], c.world.rank() == 0 ? 3 * 20 : 0);
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
// Alone, or in a group scope: a group of one moves bytes and holds nobody.
TEST(CommunicatorBase, OperationsWithPeersHoldTheHost) {
  for (const int ranks : {1, 2})
    launch_threads(ranks, [ranks](RankContext& c) {
      Values x(DType::kF32, 1000);
      for (const bool grouped : {false, true}) {
        const double before = c.compute.held_seconds().value();
        {
          std::optional<GroupScope> scope;
          if (grouped) scope.emplace(c.world);
          for (int call = 0; call < 2; ++call) c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
        }
        EXPECT_EQ(c.compute.held_seconds().value() > before, ranks > 1) << ranks << ' ' << grouped;
      }
    });
}

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

}  // namespace
}  // namespace trident::conformance

namespace trident::conformance {

// The conformance suite on thread ranks.

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorConformance,
                         ::testing::Values(Case{launch_threads, 1}, Case{launch_threads, 2}, Case{launch_threads, 3},
                                         Case{launch_threads, 4}, Case{launch_threads, 8}),
                         [](const auto& info) { return std::to_string(info.param.ranks) + "ranks"; });

}  // namespace trident::conformance

namespace trident::conformance {
namespace {

// Many operations at once on thread ranks.

TEST(CommunicatorStress, FourRanksRunRandomPrograms) {
  for (unsigned seed = 1; seed <= 12; ++seed) run_program(launch_threads, 4, seed);
}

TEST(CommunicatorStress, EightAndThreeRanksRunRandomPrograms) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    run_program(launch_threads, 8, seed);
    run_program(launch_threads, 3, seed);
  }
}

TEST(CommunicatorStress, ALongQueueOfOperationsIsWorkedOff) {
  launch_threads(2, [](RankContext& c) { queue_many(c, 1500, 700); });
}

TEST(CommunicatorStress, OperationsAllocateNothing) { launch_threads(3, run_without_allocating); }

#ifdef TRIDENT_TSAN
// A rank writes a buffer that a queued all_reduce still uses: the missing wait is a data race with the peer, which
// ThreadSanitizer reports although the write itself is only announced, as that of a library would be.
// The peer arrives after the write and is told so without synchronisation; any would order the write before the peer's reads.
TEST(CommunicatorStress, AMissingWaitIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::atomic<bool> written{false};
        std::atomic<bool> moved{false};
        const auto wait_for = [](const std::atomic<bool>& flag) {
          while (!flag.load(std::memory_order_relaxed)) std::this_thread::yield();
        };
        launch_threads(2, [&](RankContext& c) {
          Values x(DType::kF32, 4000);
          if (c.world.rank() == 1) wait_for(written);
          c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
          if (c.world.rank() == 0) {
            announce_write(x.view());
            written.store(true, std::memory_order_relaxed);
            wait_for(moved);
          } else {
            moved.store(true, std::memory_order_relaxed);
          }
          c.queues[0]->synchronize();
        });
        std::exit(0);
      },
      ::testing::ExitedWithCode(66), "data race");
}
#endif

// As the largest demonstration has.
TEST(CommunicatorStress, ThirtyTwoRanksRunRandomPrograms) {
  std::atomic<int> arrived{0};
  launch_threads(32, [&](RankContext& c) { meet_and_sum(c, arrived, 10, 5000); });
}

}  // namespace
}  // namespace trident::conformance

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
