// Many operations at once on thread ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "core/tsan_announce.h"
#include "tests/parallel/random_program.h"
#include "tests/parallel/thread_ranks.h"

namespace trident::conformance {
namespace {

TEST(CommunicatorStress, RandomProgramsOnFourRanks) {
  for (unsigned seed = 1; seed <= 12; ++seed) run_program(launch_threads, 4, seed);
}

TEST(CommunicatorStress, RandomProgramsOnEightAndOnThreeRanks) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    run_program(launch_threads, 8, seed);
    run_program(launch_threads, 3, seed);
  }
}

// More operations than a communicator keeps, none awaited: issuing waits for the oldest.
TEST(CommunicatorStress, ALongQueueOfOperations) {
  launch_threads(2, [](RankContext& c) {
    std::vector<float> x(1500, 0.0f), y(3000, 0.0f);
    const TensorView a(x.data(), DType::kF32, {1500}), b(y.data(), DType::kF32, {3000});
    std::fill(x.begin(), x.end(), 1.0f);
    for (int i = 0; i < 700; ++i) {
      c.world.all_gather(*c.queues[0], b, a);
      c.world.reduce_scatter(*c.queues[0], a, b, ReduceOp::kMax);
    }
    c.queues[0]->synchronize();
    EXPECT_EQ(x[7], 1.0f);
  });
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

// 32 ranks, as the largest demonstration has, on whatever cores there are.
TEST(CommunicatorStress, ThirtyTwoRanks) {
  std::atomic<int> arrived{0};
  launch_threads(32, [&](RankContext& c) {
    for (int round = 1; round <= 10; ++round) {
      ++arrived;
      c.world.barrier();
      EXPECT_GE(arrived.load(), 32 * round);
      c.world.barrier();
    }
    Values x(DType::kI32, 5000, [&](auto i) { return value(c.world.rank(), i); });
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    expect_values(x, [&](auto i) { return reduced(ReduceOp::kSum, 32, i); }, "32 ranks");
  });
}

}  // namespace
}  // namespace trident::conformance
