// How many messages a rank sends, as the number of nodes grows: control costs a logarithm of it.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstdint>

#include "parallel/transport/wire_group.h"
#include "tests/parallel/node_ranks.h"

namespace trident::conformance {
namespace {

using MeteredCall = std::function<void(RankContext&)>;

// The most messages that any rank sends while all ranks of `nodes` nodes of two make the call.
std::int64_t most_messages(int nodes, const MeteredCall& call) {
  NodeCluster cluster({.nodes = equal_nodes(nodes, 2)});
  std::atomic<std::int64_t> most{0};
  run_on_nodes(cluster, [&](NodeRank& self) {
    self.communicator->set_checks(nodes > kMostGreeted ? CollectiveChecks::kOn : CollectiveChecks::kOff);
    const std::int64_t before = self.messages_sent();
    RankContext context = self.context();
    call(context);
    const std::int64_t sent = self.messages_sent() - before;
    for (std::int64_t seen = most; sent > seen && !most.compare_exchange_weak(seen, sent);) continue;
  });
  return most;
}

std::int64_t log2_up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

// Each call, and how many messages a rank may send of it on k nodes.
struct Growth {
  const char* name;
  MeteredCall call;
  std::function<std::int64_t(int nodes)> most;
};

void all_reduce(RankContext& c, DType dtype, std::int64_t count, ReduceOp op) {
  Values x(dtype, count);
  c.world.all_reduce(c.compute, x.view(), op);
}

const std::vector<Growth>& growths() {
  static const std::vector<Growth> all = {
      {"an agreement to stop", [](RankContext& c) { all_reduce(c, DType::kI32, 2, ReduceOp::kMax); }, log2_up},
      {"exact sums of a step", [](RankContext& c) { all_reduce(c, DType::kI64, 142, ReduceOp::kSum); }, log2_up},
      {"times of a log line", [](RankContext& c) { all_reduce(c, DType::kF64, 29, ReduceOp::kSum); }, log2_up},
      {"a barrier", [](RankContext& c) { c.world.barrier(); }, log2_up},
      {"a line from one rank", [](RankContext& c) {
         Values line(DType::kU8, 256);
         c.world.broadcast(c.compute, line.view(), 0);
       }, log2_up},
      {"a split into pipelines", [](RankContext& c) { c.world.split(every_nth(c.world, 2), "pp"); }, log2_up},
      // Large messages go straight, each byte once: as many as there are nodes.
      {"a large sum", [](RankContext& c) { all_reduce(c, DType::kF32, 20'000, ReduceOp::kSum); },
       [](int nodes) { return std::int64_t{2} * (nodes - 1); }},
  };
  return all;
}

TEST(NodeMessages, GrowAsALogarithm) {
  for (const Growth& growth : growths())
    for (const int nodes : {4, 8, 16, 32})
      EXPECT_LE(most_messages(nodes, growth.call), growth.most(nodes)) << growth.name << " on " << nodes << " nodes";
}

// A number of nodes that is no power of two costs at most two messages more.
TEST(NodeMessages, OfAnyNumberOfNodes) {
  for (const Growth& growth : growths())
    for (const int nodes : {3, 5, 11, 19})
      EXPECT_LE(most_messages(nodes, growth.call), growth.most(nodes) + 2) << growth.name << " on " << nodes << " nodes";
}

// With checks, ranks of few nodes tell each other what they called; those of many do not.
TEST(NodeMessages, HeadersStopAtEightNodes) {
  const auto sent_with_checks = [](int nodes) {
    NodeCluster cluster({.nodes = equal_nodes(nodes, 1)});
    std::atomic<std::int64_t> sent{0};
    run_on_nodes(cluster, [&](NodeRank& self) {
      const std::int64_t before = self.messages_sent();
      RankContext context = self.context();
      all_reduce(context, DType::kI64, 2, ReduceOp::kSum);
      if (self.communicator->rank() == 0) sent = self.messages_sent() - before;
    });
    return sent.load();
  };
  EXPECT_EQ(sent_with_checks(8), 7 + 3);
  EXPECT_EQ(sent_with_checks(16), 4);
}

}  // namespace
}  // namespace trident::conformance
