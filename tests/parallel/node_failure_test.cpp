// Ranks of several nodes that disagree, stay away, give up or throw: every rank ends, and the message names world ranks. What they
// share with other transports is failure_conformance.h's.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "core/check.h"
#include "parallel/transport/message_communicator.h"
#include "tests/parallel/failure_conformance.h"
#include "tests/parallel/node_ranks.h"

namespace trident::conformance {
namespace {

Failures run_failing(NodeLayout layout, double timeout, const std::function<void(NodeRank&)>& body) {
  layout.timeout_seconds = timeout;
  NodeCluster cluster(layout);
  return failures_of(layout.nodes.size(), [&](auto attempt) {
    run_on_nodes(cluster, [&](NodeRank& self) { attempt(self.communicator->rank(), [&] { body(self); }); });
    EXPECT_EQ(cluster.network().forgotten_receives(), 0);
  });
}

TensorView floats(std::vector<float>& x) { return {x.data(), DType::kF32, {static_cast<std::int64_t>(x.size())}}; }

// Without checks a disagreement meets the wire, which names the peer; its words reach the ranks of the node too.
TEST(NodeFailure, AnErrorOfTheWireEndsTheNode) {
  const Failures failure = run_failing({{0, 0, 1, 1}}, 30, [&](NodeRank& self) {
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
  const Failures apart = run_failing({equal_nodes(4, 1)}, kMissingSeconds, [&](NodeRank& self) {
    std::vector<float> x(8);
    const auto dp = self.communicator->split(backwards(*self.communicator), "dp");  // group order 3, 2, 1, 0
    if (self.communicator->rank() == 1 || self.communicator->rank() == 2) return;
    dp->all_reduce(self.compute, floats(x), ReduceOp::kSum);
  });
  EXPECT_TRUE(contains(apart.error, "s in all_reduce #1 over dp: ranks 2, 1 have not arrived")) << apart.error;

  // Whoever gives up first says what it awaits, and for whom.
  const Failures nodes = run_failing({{0, 0, 1, 1}}, kMissingSeconds, [&](NodeRank& self) {
    if (self.communicator->rank() == 3) return;
    std::vector<float> x(8);
    self.communicator->all_reduce(self.compute, floats(x), ReduceOp::kSum);
  });
  const auto said = [&](int rank, const char* awaited) {
    return nodes.error.starts_with(fmt::format("rank {} waited ", rank)) &&
           nodes.error.ends_with(std::string("s in all_reduce #1 over world: ") + awaited);
  };
  EXPECT_TRUE(said(0, "rank 2 has not arrived (on behalf of a node)") || said(1, "rank 0 has not arrived (awaiting other nodes)") ||
              said(2, "rank 3 has not arrived"))
      << nodes.error;
}

TEST(NodeFailure, TheWatchdogSeesQueueStreamsAndMessages) {
  std::vector<float> x(20000), y(20000);
  const Failures queue = run_failing({{0, 1}}, 0.3, [&](NodeRank& self) {
    if (self.communicator->rank() == 1) return;
    self.communicator->broadcast(*self.context().queues[0], floats(x), 0);
    self.communicator->barrier();
  });
  EXPECT_TRUE(contains(queue.error, "barrier #2 over world: an earlier operation of world is not complete")) << queue.error;
  const Failures ring = run_failing({{0, 1}}, 0.3, [&](NodeRank& self) {
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
  layout.timeout_seconds = kMissingSeconds;
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

TEST(NodeFailure, AWorldThatDoesNotFitIsRefused) {
  NodeCluster cluster({{0, 0, 1}});
  Progress progress(cluster.node_of(2).doorbell(0));
  WireEndpoint place = cluster.place(2, nullptr, progress);
  EXPECT_THROW(make_node_world(2, place), InternalError);
  place.nodes = {0, 1, 1};
  EXPECT_THROW(make_node_world(2, place), InternalError);
}

FailureCase on(const std::vector<int>& nodes) {
  std::string name = "nodes";
  for (const int node : nodes) name += std::to_string(node);
  return {name, nodes, [nodes](double timeout, const std::function<void(RankContext&)>& body) {
            return run_failing({nodes}, timeout, [&](NodeRank& self) {
              RankContext context = self.context();
              body(context);
            });
          }};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Nodes, CommunicatorFailures,
                         ::testing::Values(on({0, 1}), on({0, 1, 2}), on({0, 0, 1, 1}), on({0, 0, 0, 1})), name_of_case);
INSTANTIATE_TEST_SUITE_P(Nodes, PendingFailures, ::testing::Values(on({0, 1}), on({0, 0, 1, 1}), on({0, 0, 0, 1})), name_of_case);

}  // namespace trident::conformance
