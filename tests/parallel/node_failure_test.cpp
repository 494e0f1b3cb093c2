// Tests what happens when ranks of several nodes disagree, stay away, give up or throw: every rank ends, and the message names
// world ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "core/check.h"
#include "parallel/transport/message_communicator.h"
#include "tests/parallel/node_ranks.h"
#include "tests/support/error_text.h"

namespace trident::conformance {
namespace {

struct NodeFailures : Failures {
  std::int64_t forgotten_receives = 0;
};

NodeFailures run_failing(NodeLayout layout, double timeout, const std::function<void(NodeRank&)>& body) {
  layout.timeout_seconds = timeout;
  NodeCluster cluster(layout);
  const Failures failures = failures_of(layout.nodes.size(), [&](auto attempt) {
    run_on_nodes(cluster, [&](NodeRank& self) { attempt(self.communicator->rank(), [&] { body(self); }); });
  });
  return {failures, cluster.network().forgotten_receives()};
}

TensorView floats(std::vector<float>& x) { return {x.data(), DType::kF32, {static_cast<std::int64_t>(x.size())}}; }

const std::vector<std::vector<int>> kLayouts = {{0, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}};

// The last rank, alone or with others on its node, calls something else.
TEST(NodeFailure, ADisagreementNamesBothRanksAndBothOperations) {
  for (const std::vector<int>& nodes : kLayouts) {
    const int n = static_cast<int>(nodes.size()), last = n - 1;
    std::vector<std::vector<float>> buffers(nodes.size(), std::vector<float>(1200));
    const NodeFailures failure = run_failing({nodes}, 30, [&](NodeRank& self) {
      const auto dp = self.communicator->split(all_ranks(*self.communicator), "dp");
      const TensorView x = floats(buffers[static_cast<std::size_t>(dp->rank())]);
      for (int i = 0; i < 3; ++i) dp->barrier();
      if (dp->rank() == last) dp->all_reduce(self.compute, x, ReduceOp::kSum);
      else dp->all_gather(self.compute, x, x.range(dp->rank() * (1200 / n), 1200 / n));
    });
    EXPECT_EQ(failure.error.find(fmt::format("dp: rank {} called all_reduce f32[1200] as operation 4 while rank ", last)), 0u)
        << failure.error;
    EXPECT_TRUE(contains(failure.error, fmt::format("called all_gather f32[{}]", 1200 / n))) << failure.error;
    for (const std::string& error : failure.per_rank) EXPECT_FALSE(error.empty());
  }
}

// Whole nodes disagree with each other: found between nodes, in the words of the calls.
TEST(NodeFailure, CountDTypeReduceOpAndRootAreComparedBetweenNodes) {
  struct Call {
    const char* words;
    std::function<void(NodeRank&, TensorView)> call;
  };
  const Call base{"all_reduce f32[4000]",
                  [](NodeRank& r, TensorView x) { r.communicator->all_reduce(r.compute, x, ReduceOp::kSum); }};
  const std::vector<Call> others = {
      {"all_reduce f32[2000]",
       [](NodeRank& r, TensorView x) { r.communicator->all_reduce(r.compute, x.range(0, 2000), ReduceOp::kSum); }},
      {"all_reduce i32[4000]",
       [](NodeRank& r, TensorView x) {
         r.communicator->all_reduce(r.compute, {x.data(), DType::kI32, {4000}}, ReduceOp::kSum);
       }},
      {"all_reduce(max) f32[4000]", [](NodeRank& r, TensorView x) { r.communicator->all_reduce(r.compute, x, ReduceOp::kMax); }},
      {"broadcast f32[4000] from rank 2", [](NodeRank& r, TensorView x) { r.communicator->broadcast(r.compute, x, 2); }},
      {"barrier", [](NodeRank& r, TensorView) { r.communicator->barrier(); }},
  };
  for (const std::vector<int>& nodes : {std::vector<int>{0, 1, 2}, std::vector<int>{0, 0, 1, 1}})
    for (const Call& other : others) {
      std::vector<std::vector<float>> buffers(nodes.size(), std::vector<float>(4000));
      const NodeFailures failure = run_failing({nodes}, 30, [&](NodeRank& self) {
        const auto rank = static_cast<std::size_t>(self.communicator->rank());
        (nodes[rank] == nodes.back() ? other : base).call(self, floats(buffers[rank]));
        self.communicator->barrier();  // a rank that took a broadcast from its own node learns of it here
      });
      EXPECT_TRUE(contains(failure.error, fmt::format(" called {} as operation 1 while rank ", other.words))) << failure.error;
      EXPECT_TRUE(contains(failure.error, base.words)) << failure.error;
      for (const std::string& error : failure.per_rank) EXPECT_FALSE(error.empty());
    }
}

TEST(NodeFailure, MessagesMustAgreeInCountAndType) {
  for (const std::vector<int>& nodes : {std::vector<int>{0, 1, 1}, std::vector<int>{0, 0, 1}}) {  // rank 1 is elsewhere, and beside
    std::vector<float> sent(4000), received(8000);
    const NodeFailures failure = run_failing({nodes}, 30, [&](NodeRank& self) {
      if (self.communicator->rank() == 0) self.communicator->send(self.compute, floats(sent), 1);
      if (self.communicator->rank() == 1) self.communicator->recv(self.compute, floats(received), 0);
    });
    EXPECT_EQ(failure.error,
              "world: rank 1 called recv f32[8000] from rank 0 as message 1 while rank 0 called send f32[4000] to rank 1");
  }
}

// Without checks a disagreement meets the wire, which names the peer; its words reach the ranks of the node too.
TEST(NodeFailure, AnErrorOfTheWireEndsTheNode) {
  const NodeFailures failure = run_failing({{0, 0, 1, 1}}, 30, [&](NodeRank& self) {
    std::vector<float> x(self.communicator->rank() < 2 ? 64 : 32);
    self.communicator->set_checks(CollectiveChecks::kOff);
    const auto pairs = self.communicator->split(every_nth(*self.communicator, 2), "dp");
    if (self.communicator->rank() % 2 == 0) pairs->all_reduce(self.compute, floats(x), ReduceOp::kSum);
    else self.communicator->split(all_ranks(*self.communicator), "never");
  });
  EXPECT_TRUE(contains(failure.error, "bytes from rank ") && contains(failure.error, " were expected")) << failure.error;
  for (const std::string& error : failure.per_rank) EXPECT_FALSE(error.empty());
}

TEST(NodeFailure, TheWatchdogNamesWhoIsMissing) {
  const NodeFailures apart = run_failing({equal_nodes(4, 1)}, 0.3, [&](NodeRank& self) {
    std::vector<float> x(8);
    const auto dp = self.communicator->split(backwards(*self.communicator), "dp");  // group order 3, 2, 1, 0
    if (self.communicator->rank() == 1 || self.communicator->rank() == 2) return;
    dp->all_reduce(self.compute, floats(x), ReduceOp::kSum);
  });
  EXPECT_TRUE(contains(apart.error, "s in all_reduce #1 over dp: ranks 2, 1 have not arrived")) << apart.error;

  // Whoever gives up first says what it awaits, and for whom.
  const NodeFailures nodes = run_failing({{0, 0, 1, 1}}, 0.3, [&](NodeRank& self) {
    if (self.communicator->rank() == 3) return;
    std::vector<float> x(8);
    self.communicator->all_reduce(self.compute, floats(x), ReduceOp::kSum);
  });
  const auto said = [&](int rank, const char* awaited) {
    return nodes.error.find(fmt::format("rank {} waited 0.3", rank)) == 0 &&
           nodes.error.ends_with(std::string("s in all_reduce #1 over world: ") + awaited);
  };
  EXPECT_TRUE(said(0, "rank 2 has not arrived (on behalf of a node)") || said(1, "rank 0 has not arrived (awaiting other nodes)") ||
              said(2, "rank 3 has not arrived"))
      << nodes.error;
}

TEST(NodeFailure, TheWatchdogSeesQueueStreamsAndMessages) {
  std::vector<float> x(20000), y(20000);
  const NodeFailures queue = run_failing({{0, 1}}, 0.3, [&](NodeRank& self) {
    if (self.communicator->rank() == 1) return;
    self.communicator->broadcast(*self.context().queues[0], floats(x), 0);
    self.communicator->barrier();
  });
  EXPECT_TRUE(contains(queue.error, "barrier #2 over world: an earlier operation of world is not complete")) << queue.error;
  const NodeFailures ring = run_failing({{0, 1}}, 0.3, [&](NodeRank& self) {
    if (self.communicator->rank() == 0) return;
    const GroupScope group(*self.communicator);
    self.communicator->send(self.compute, floats(x), 0);
    self.communicator->send(self.compute, floats(x), 0);
    self.communicator->recv(self.compute, floats(y), 0);
  });
  EXPECT_TRUE(contains(ring.error,
                       "send #1 to rank 0 over world: rank 0 has not received it; send #2 to rank 0 over world: rank 0 has not "
                       "received it; recv #1 from rank 0 over world: rank 0 has not sent"))
      << ring.error;
}

// Rank 1 looks once, so that its header and its first pieces leave, and never again.
std::string error_beside_a_rank_that_looks_once(const MessageOptions& options) {
  std::vector<float> x(2 * 20000), y(2 * 40000);
  NodeLayout layout{{0, 1}, options};
  layout.timeout_seconds = 0.3;
  NodeCluster cluster(layout);
  try {
    run_on_nodes(cluster, [&](NodeRank& self) {
      const int rank = self.communicator->rank();
      const TensorView in = floats(x).range(rank * 20000, 20000), out = floats(y).range(rank * 40000, 40000);
      if (rank == 0) return self.communicator->all_gather(self.compute, out, in);
      self.communicator->all_gather(self.queue0, out, in);
      while (!cluster.node_of(1).failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      self.queue0.synchronize();
    });
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "";
}

TEST(NodeFailure, TheWatchdogTellsSilentFromDeafRanks) {
  EXPECT_TRUE(contains(error_beside_a_rank_that_looks_once({}), "all_gather #1 over world: rank 1 has not received"));
  EXPECT_TRUE(
      contains(error_beside_a_rank_that_looks_once({.message_bytes = 1000}), "all_gather #1 over world: rank 1 has not sent"));
}

TEST(NodeFailure, AThrowingRankIsNamedOnEveryNode) {
  for (const std::vector<int>& nodes : kLayouts) {
    const NodeFailures failure = run_failing({nodes}, 30, [&](NodeRank& self) {
      std::vector<float> x(3000);
      self.communicator->all_reduce(self.compute, floats(x), ReduceOp::kSum);
      if (self.communicator->rank() == 1) throw DataError("corpus.bin: too short");
      self.communicator->all_reduce(self.compute, floats(x), ReduceOp::kSum);
    });
    EXPECT_EQ(failure.error, "corpus.bin: too short");
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      EXPECT_EQ(failure.per_rank[rank], rank == 1 ? "corpus.bin: too short" : "rank 1 failed: corpus.bin: too short");
  }
}

TEST(NodeFailure, AbortReachesEveryGroup) {
  for (const std::vector<int>& nodes : kLayouts) {
    const NodeFailures failure = run_failing({nodes}, 30, [&](NodeRank& self) {
      const auto all = self.communicator->split(all_ranks(*self.communicator), "all");
      if (self.communicator->rank() == 0) all->abort("stop requested");
      else all->barrier();
      self.communicator->barrier();
    });
    for (const std::string& error : failure.per_rank) EXPECT_EQ(error, "stop requested");
  }
}

TEST(NodeFailure, LeavingWithOperationsPendingIsAFailure) {
  std::vector<float> x(3000), y(3000);
  for (const std::vector<int>& nodes : kLayouts) {
    const NodeFailures failure = run_failing({nodes}, 30, [&](NodeRank& self) {
      const int last = self.communicator->size() - 1;
      if (self.communicator->rank() == 0) self.communicator->all_reduce(self.queue0, floats(x), ReduceOp::kSum);
      if (self.communicator->rank() == last) self.communicator->recv(self.compute, floats(y), 0);
    });
    EXPECT_EQ(failure.error.find("rank 0 left with operations pending: all_reduce #1 over world"), 0u) << failure.error;
    EXPECT_EQ(failure.forgotten_receives, 0);
  }
}

TEST(NodeFailure, AGroupLeftByAnExceptionIssuesNothing) {
  for (const std::vector<int>& nodes : kLayouts)
    launch_on_nodes({nodes})(static_cast<int>(nodes.size()), [&](RankContext& c) {
      std::vector<float> x(4, 1.0f);
      try {
        const GroupScope group(c.world);
        c.world.all_reduce(c.compute, floats(x), ReduceOp::kSum);
        if (c.world.rank() == 0) c.world.send(c.compute, floats(x), 1);
        throw ConfigError("no");
      } catch (const ConfigError&) {
      }
      c.world.all_reduce(c.compute, floats(x), ReduceOp::kSum);
      EXPECT_EQ(x[0], static_cast<float>(nodes.size()));
    });
}

TEST(NodeFailure, AWorldThatDoesNotFitIsRefused) {
  NodeCluster cluster({{0, 0, 1}});
  Progress progress(cluster.node_of(2).doorbell(0));
  EXPECT_THROW(make_node_world({2, {0, 0, 1}, &cluster.node_of(2), nullptr, allocate_host}, progress), InternalError);
  EXPECT_THROW(make_node_world({2, {0, 1, 1}, &cluster.node_of(2), nullptr, allocate_host}, progress), InternalError);
}

// A rank throws at a random moment; everything ends quickly, and the first cause is what the caller sees.
TEST(NodeFailure, ARankThatThrowsAtARandomPointEndsAll) {
  for (int seed = 0; seed < 24; ++seed) {
    const std::vector<int>& nodes = kLayouts[static_cast<std::size_t>(seed % 3)];
    const int ranks = static_cast<int>(nodes.size()), thrower = seed * 7 % ranks, at = seed * 13 % 20;
    const NodeFailures failure = run_failing({nodes}, 30, [&](NodeRank& self) {
      for (int i = 0; i < 20; ++i) {
        std::vector<float> x(i % 4 == 0 ? 6000 : 20),
            y(x.size() * static_cast<std::size_t>(ranks));  // freed while peers may be busy
        if (self.communicator->rank() == thrower && i == at) throw std::runtime_error("planted");
        if (i % 3 == 0) self.communicator->all_gather(self.compute, floats(y), floats(x));
        else self.communicator->all_reduce(self.compute, floats(x), ReduceOp::kSum);
        if (i % 5 == 0) self.communicator->barrier();
      }
    });
    EXPECT_EQ(failure.error, "planted");
    for (int r = 0; r < ranks; ++r)
      EXPECT_EQ(failure.per_rank[static_cast<std::size_t>(r)],
                r == thrower ? "planted" : fmt::format("rank {} failed: planted", thrower));
    EXPECT_EQ(failure.forgotten_receives, 0);
  }
}

}  // namespace
}  // namespace trident::conformance
