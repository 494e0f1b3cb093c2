// Many operations at once on ranks of several nodes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "core/clock.h"
#include "tests/parallel/node_ranks.h"
#include "tests/parallel/random_program.h"

namespace trident::conformance {
namespace {

constexpr MessageOptions kSmallPieces{.chunk_bytes = 1000, .staging_bytes = 1 << 14, .small_bytes = 256, .message_bytes = 5000};

void run_programs(const NodeLayout& layout, unsigned first_seed, unsigned count) {
  for (unsigned seed = first_seed; seed < first_seed + count; ++seed) run_program(launch_on_nodes(layout), layout.size(), seed);
}

TEST(NodeStress, RandomProgramsOnRanksApart) { run_programs({equal_nodes(4, 1)}, 1, 4); }

TEST(NodeStress, RandomProgramsOnNodes) {
  run_programs({equal_nodes(2, 2)}, 11, 4);
  run_programs({equal_nodes(2, 4), kSmallPieces}, 21, 2);
  run_programs({{0, 1, 0, 1}, kSmallPieces}, 31, 3);
}

TEST(NodeStress, RandomProgramsOnUnequalNodes) {
  run_programs({{0, 0, 0, 1}, kSmallPieces}, 41, 3);
  run_programs({{0, 1, 1, 2, 2, 2, 2, 2}}, 51, 2);
}

// Messages linger, so that those of different channels overtake each other by far.
TEST(NodeStress, RandomProgramsOnASlowNetwork) {
  run_programs({.nodes = {0, 0, 1, 1}, .options = kSmallPieces, .wire = {.longest_delay = 40, .eager_bytes = 0}}, 61, 2);
}

TEST(NodeStress, OperationsAllocateNothing) {
  launch_on_nodes({equal_nodes(3, 1)})(3, run_without_allocating);
  launch_on_nodes({{0, 0, 1, 1, 1}, kSmallPieces})(5, run_without_allocating);
}

// More operations than a communicator keeps, none awaited: issuing waits for the oldest.
TEST(NodeStress, ALongQueueOfOperations) {
  launch_on_nodes({{0, 0, 1}})(3, [](RankContext& c) {
    std::vector<float> x(20, 1.0f), y(60, 0.0f);
    const TensorView a(x.data(), DType::kF32, {20}), b(y.data(), DType::kF32, {60});
    for (int i = 0; i < 200; ++i) {
      c.world.all_gather(*c.queues[0], b, a);
      c.world.reduce_scatter(*c.queues[0], a, b, ReduceOp::kMax);
    }
    c.queues[0]->synchronize();
    EXPECT_EQ(x[7], 1.0f);
  });
}

// A rank that awaits only its own node still lets the wire work: what it sent may not be on its way yet.
TEST(NodeStress, TheWireIsPolledWhileARankWaitsForItsNode) {
  NodeCluster cluster({{0, 0, 1}});
  std::atomic<const ThreadWire*> waiting{nullptr};  // rank 0's, once it is about to wait
  std::atomic<std::int64_t> before{0};
  run_on_nodes(cluster, [&](NodeRank& self) {
    const auto node = self.communicator->split(neighbours(*self.communicator, 2), "node");
    self.communicator->barrier();
    if (self.communicator->rank() == 0) {
      const auto& wire = dynamic_cast<const ThreadWire&>(*self.wire);
      before = wire.polls();
      waiting = &wire;
    }
    if (self.communicator->rank() == 1) {
      const auto has_polled = [&] { return waiting != nullptr && waiting.load()->polls() - before >= 3; };
      for (const double give_up = monotonic_seconds() + 60; !has_polled() && monotonic_seconds() < give_up;)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(has_polled());
    }
    node->barrier();
  });
}

// 32 ranks on four nodes, as the largest demonstration across nodes has.
TEST(NodeStress, ThirtyTwoRanks) {
  std::atomic<int> arrived{0};
  launch_on_nodes({equal_nodes(4, 8)})(32, [&](RankContext& c) {
    for (int round = 1; round <= 4; ++round) {
      ++arrived;
      c.world.barrier();
      EXPECT_GE(arrived.load(), 32 * round);
      c.world.barrier();
    }
    Values x(DType::kI32, 9000, [&](auto i) { return value(c.world.rank(), i); });
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    expect_values(x, [&](auto i) { return reduced(ReduceOp::kSum, 32, i); }, "32 ranks");
  });
}

}  // namespace
}  // namespace trident::conformance
