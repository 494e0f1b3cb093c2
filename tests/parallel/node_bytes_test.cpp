// Tests what crosses nodes: exactly the bytes that must, in messages of bounded size.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>

#include "core/clock.h"
#include "parallel/transport/message_communicator.h"
#include "parallel/transport/wire_group.h"
#include "tests/parallel/node_ranks.h"
#include "tests/parallel/random_program.h"

namespace trident::conformance {
namespace {

constexpr std::int64_t kCount = 48 * 1024;  // divides into shares of whole cache lines for up to 8 ranks
constexpr std::int64_t kBytes = kCount * 4;

using Call = std::function<void(Communicator&, Stream&)>;

// Bytes that the ranks of each node send while `call` runs, without headers.
std::vector<std::int64_t> bytes_of_nodes(const NodeLayout& layout, const Call& call) {
  NodeCluster cluster(layout);
  std::vector<std::atomic<std::int64_t>> sent(layout.nodes.size());
  run_on_nodes(cluster, [&](NodeRank& self) {
    self.communicator->set_checks(CollectiveChecks::kOff);
    self.communicator->barrier();
    const std::int64_t before = self.wire->bytes_sent();
    call(*self.communicator, self.compute);
    sent[static_cast<std::size_t>(layout.nodes[static_cast<std::size_t>(self.communicator->rank())])] +=
        self.wire->bytes_sent() - before;
  });
  std::vector<std::int64_t> result(static_cast<std::size_t>(layout.nodes.back() + 1));
  for (std::size_t node = 0; node < result.size(); ++node) result[node] = sent[node];
  return result;
}

void all_reduce(Communicator& c, Stream& stream) {
  Values x(DType::kF32, kCount);
  c.all_reduce(stream, x.view(), ReduceOp::kSum);
}
void reduce_scatter(Communicator& c, Stream& stream) {
  Values in(DType::kF32, kCount), out(DType::kF32, kCount / c.size());
  c.reduce_scatter(stream, out.view(), in.view(), ReduceOp::kSum);
}
void all_gather(Communicator& c, Stream& stream) {
  Values in(DType::kF32, kCount / c.size()), out(DType::kF32, kCount);
  c.all_gather(stream, out.view(), in.view());
}
void all_to_all(Communicator& c, Stream& stream) {
  Values in(DType::kF32, kCount), out(DType::kF32, kCount);
  c.all_to_all(stream, out.view(), in.view());
}

TEST(NodeBytes, EqualNodesSendTheMinimum) {
  for (const auto& [k, n] : std::vector<std::pair<int, int>>{{2, 1}, {4, 1}, {2, 2}, {2, 4}, {4, 2}}) {
    const NodeLayout layout{equal_nodes(k, n)};
    for (const std::int64_t sent : bytes_of_nodes(layout, all_reduce)) EXPECT_EQ(sent, 2 * (k - 1) * kBytes / k) << k << " x " << n;
    for (const std::int64_t sent : bytes_of_nodes(layout, reduce_scatter)) EXPECT_EQ(sent, (k - 1) * kBytes / k) << k << " x " << n;
    for (const std::int64_t sent : bytes_of_nodes(layout, all_gather)) EXPECT_EQ(sent, (k - 1) * kBytes / k) << k << " x " << n;
    // Slices of n ranks for the n (k - 1) ranks elsewhere.
    for (const std::int64_t sent : bytes_of_nodes(layout, all_to_all)) EXPECT_EQ(sent, n * (k - 1) * kBytes / k) << k << " x " << n;
  }
}

// Chunk by chunk, each rank puts into its stage what the chunk needs of an operand out of reach, and no byte twice.
TEST(NodeBytes, AnOperandOutOfReachIsStagedOnce) {
  for (const auto& [ranks, chunks] : std::vector<std::pair<int, int>>{{2, 3}, {2, 6}, {4, 3}}) {
    const std::int64_t scratch = kBytes / ranks / chunks;  // sums of two slices, of a third or a sixth of their elements each
    NodeCluster cluster({.nodes = equal_nodes(2, ranks), .options = {.staging_bytes = scratch}, .outside = 8});
    run_on_nodes(cluster, [](NodeRank& self) { reduce_scatter(*self.communicator, self.compute); });
    for (const int rank : {0, ranks}) {
      SharedWorld& node = cluster.node_of(rank);
      const GroupBlock block = node.group(node.world_group(), ranks);
      std::uint64_t pieces = 0;
      for (std::uint64_t slot = 0; slot < kSlots; ++slot) pieces += block.slot(slot).filled;
      EXPECT_EQ(pieces, static_cast<std::uint64_t>(ranks * (kBytes / kPieceBytes))) << ranks << " ranks, " << chunks << " chunks";
    }
  }
}

TEST(NodeBytes, ABroadcastReachesEveryNodeOnce) {
  for (const auto& nodes : {equal_nodes(4, 1), equal_nodes(2, 4), equal_nodes(3, 2), std::vector<int>{0, 0, 0, 1, 2, 2}}) {
    const std::vector<std::int64_t> sent = bytes_of_nodes({nodes}, [](Communicator& c, Stream& stream) {
      Values x(DType::kF32, kCount);
      c.broadcast(stream, x.view(), 1);
    });
    EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}), nodes.back() * kBytes);
  }
}

// Nodes of 3 and 1, and of 1, 2 and 1: every slice still crosses each pair of nodes once.
TEST(NodeBytes, UnequalNodesSendTheMinimum) {
  const std::vector<std::int64_t> four = {kBytes / 4 * 1, kBytes / 4 * 3};  // partial sums of the other node's slices
  EXPECT_EQ(bytes_of_nodes({{0, 0, 0, 1}}, reduce_scatter), four);
  EXPECT_EQ(bytes_of_nodes({{0, 0, 0, 1}}, all_gather), (std::vector<std::int64_t>{kBytes / 4 * 3, kBytes / 4}));
  EXPECT_EQ(bytes_of_nodes({{0, 0, 0, 1}}, all_reduce), (std::vector<std::int64_t>{kBytes, kBytes}));
  EXPECT_EQ(bytes_of_nodes({{0, 1, 1, 2}}, reduce_scatter),
            (std::vector<std::int64_t>{kBytes / 4 * 3, kBytes / 4 * 2, kBytes / 4 * 3}));
  EXPECT_EQ(bytes_of_nodes({{0, 1, 1, 2}}, all_gather),
            (std::vector<std::int64_t>{kBytes / 4 * 2, kBytes / 4 * 4, kBytes / 4 * 2}));
}

// Small operands: one rank of a node speaks for it. Floats are gathered, so that they can be added in order; integers and maxima
// double.
TEST(NodeBytes, SmallReductionsTakeALogarithmOfMessages) {
  const auto sends = [](DType dtype, ReduceOp op, int nodes) {
    return bytes_of_nodes({equal_nodes(nodes, 2)}, [&](Communicator& c, Stream& stream) {
      Values x(dtype, 100);
      c.all_reduce(stream, x.view(), op);
    });
  };
  for (const std::int64_t sent : sends(DType::kF32, ReduceOp::kSum, 8)) EXPECT_EQ(sent, 7 * 400);
  for (const std::int64_t sent : sends(DType::kF32, ReduceOp::kSum, 5)) EXPECT_EQ(sent, 4 * 400);
  for (const std::int64_t sent : sends(DType::kI64, ReduceOp::kSum, 8)) EXPECT_EQ(sent, 3 * 800);
  for (const std::int64_t sent : sends(DType::kF32, ReduceOp::kMax, 4)) EXPECT_EQ(sent, 2 * 400);
  // With five, the first joins the second, four double, and the second tells the first.
  EXPECT_EQ(sends(DType::kI32, ReduceOp::kSum, 5), (std::vector<std::int64_t>{400, 3 * 400, 2 * 400, 2 * 400, 2 * 400}));
}

// With checks each pair of ranks that talk exchanges a header per operation, of fixed size.
TEST(NodeBytes, HeadersComeOnTop) {
  for (const CollectiveChecks checks : {CollectiveChecks::kOff, CollectiveChecks::kOn}) {
    NodeCluster cluster({equal_nodes(3, 1)});
    run_on_nodes(cluster, [&](NodeRank& self) {
      Communicator& c = *self.communicator;
      c.set_checks(checks);
      c.barrier();
      const std::int64_t before = self.wire->bytes_sent();
      all_gather(c, self.compute);
      const std::int64_t headers = checks == CollectiveChecks::kOn ? 2 * static_cast<std::int64_t>(sizeof(IssuedCall)) : 0;
      EXPECT_EQ(self.wire->bytes_sent() - before, 2 * kBytes / 3 + headers);
      Values x(DType::kF32, 10), y(DType::kF32, 10);
      const GroupScope scope(c);
      c.send(self.compute, x.view(), (c.rank() + 1) % 3);
      c.recv(self.compute, y.view(), (c.rank() + 2) % 3);
      EXPECT_EQ(self.wire->bytes_sent() - before, 2 * kBytes / 3 + headers);  // nothing leaves before the group ends
    });
  }
}

TEST(NodeBytes, MessagesAndPiecesHaveBounds) {
  for (const auto& nodes : {equal_nodes(3, 1), equal_nodes(2, 2), std::vector<int>{0, 0, 0, 1}}) {
    NodeCluster cluster({nodes, {.chunk_bytes = 2048, .staging_bytes = 1 << 20, .small_bytes = 100, .message_bytes = 7000}});
    run_on_nodes(cluster, [&](NodeRank& self) {
      all_reduce(*self.communicator, self.compute);
      reduce_scatter(*self.communicator, self.compute);
      self.communicator->barrier();
      if (self.communicator->rank() == 0) {
        EXPECT_LE(cluster.network().longest_message(), 7000);
      }
      self.communicator->barrier();
      all_to_all(*self.communicator, self.compute);
      Values x(DType::kF32, kCount);
      if (self.communicator->rank() == 0) self.communicator->send(self.compute, x.view(), self.communicator->size() - 1);
      if (self.communicator->rank() == self.communicator->size() - 1) self.communicator->recv(self.compute, x.view(), 0);
    });
    EXPECT_EQ(cluster.network().longest_message(), 7000);
  }
}

// Two pieces from every peer, however many peers; chunks shrink, but not to nothing.
TEST(NodeBytes, StagingIsBounded) {
  SharedWorld* const no_node = nullptr;
  const auto staging = [&](int ranks, const MessageOptions& options) {
    std::vector<int> global_ranks(static_cast<std::size_t>(ranks));
    const auto endpoint = std::make_shared<WireEndpoint>(WireEndpoint{nullptr, no_node, 0, nullptr, options});
    const WireGroup group(endpoint, "dp", 0, global_ranks, 0);
    EXPECT_EQ(group.staging_bytes(), 2 * (ranks - 1) * group.chunk_bytes());
    EXPECT_EQ(group.chunk_bytes() % 8, 0);
    EXPECT_EQ(group.piece_elements(DType::kBF16), group.chunk_bytes() / 2);
    return group.staging_bytes();
  };
  EXPECT_EQ(staging(1, {}), 0);
  EXPECT_EQ(staging(2, {}), 8 << 20);
  for (const int ranks : {3, 4, 17, 64, 1024, 2050, 16385}) EXPECT_LE(staging(ranks, {}), 16 << 20) << ranks;
  EXPECT_EQ(staging(30001, {}), 30000 * 2 * 512);
  EXPECT_EQ(staging(3, {.chunk_bytes = 1}), 2 * 2 * 8);
}

// Groups that meet in a pair of ranks never share a channel, whatever each rank has split off before.
TEST(NodeBytes, ChannelsAreTheirOwn) {
  launch_on_nodes({equal_nodes(4, 1)})(4, [](RankContext& c) {
    const int rank = c.world.rank();
    const auto pair = c.world.split(neighbours(c.world, 2), "pair");
    std::unique_ptr<Communicator> more;
    if (rank < 2) more = pair->split(all_ranks(*pair), "only here");  // these two have drawn more channels than the others
    const auto comb = c.world.split(every_nth(c.world, 2), "comb");
    const auto again = comb->split(all_ranks(*comb), "again");
    std::vector<Communicator*> all = {&c.world, pair.get(), comb.get(), again.get()};
    if (more) all.push_back(more.get());
    std::vector<Values> x;
    for (std::size_t i = 0; i < all.size(); ++i)
      x.emplace_back(DType::kI32, 700, [&](auto e) { return value(rank, e) + static_cast<double>(i); });
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->all_reduce(*c.queues[i % 2], x[i].view(), ReduceOp::kMax);
    for (Stream* queue : c.queues) queue->synchronize();
    const auto largest = [&](std::size_t i, std::vector<int> members) {
      expect_values(x[i],
                    [&](auto e) {
                      double most = 0;
                      for (const int r : members) most = std::max(most, value(r, e) + static_cast<double>(i));
                      return most;
                    },
                    "group " + std::to_string(i));
    };
    largest(0, {0, 1, 2, 3});
    largest(1, {rank / 2 * 2, rank / 2 * 2 + 1});
    largest(2, {rank % 2, rank % 2 + 2});
    largest(3, {rank % 2, rank % 2 + 2});
  });
}

// How many messages a rank sends, as the number of nodes grows: control costs a logarithm of it.

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
TEST(NodeMessages, AnyNumberOfNodesCostsAtMostTwoMore) {
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

// Many operations at once on ranks of several nodes.

constexpr MessageOptions kSmallPieces{.chunk_bytes = 1000, .staging_bytes = 1 << 14, .small_bytes = 256, .message_bytes = 5000};

void run_programs(const NodeLayout& layout, unsigned first_seed, unsigned count) {
  for (unsigned seed = first_seed; seed < first_seed + count; ++seed) run_program(launch_on_nodes(layout), layout.size(), seed);
}

TEST(NodeStress, RanksApartRunRandomPrograms) { run_programs({equal_nodes(4, 1)}, 1, 4); }

TEST(NodeStress, NodesRunRandomPrograms) {
  run_programs({equal_nodes(2, 2)}, 11, 4);
  run_programs({equal_nodes(2, 4), kSmallPieces}, 21, 2);
  run_programs({{0, 1, 0, 1}, kSmallPieces}, 31, 3);
}

TEST(NodeStress, UnequalNodesRunRandomPrograms) {
  run_programs({{0, 0, 0, 1}, kSmallPieces}, 41, 3);
  run_programs({{0, 1, 1, 2, 2, 2, 2, 2}}, 51, 2);
}

// Messages linger, so that those of different channels overtake each other by far.
TEST(NodeStress, ASlowNetworkRunsRandomPrograms) {
  run_programs({.nodes = {0, 0, 1, 1}, .options = kSmallPieces, .wire = {.longest_delay = 40, .eager_bytes = 0}}, 61, 2);
}

TEST(NodeStress, OperationsAllocateNothing) {
  launch_on_nodes({equal_nodes(3, 1)})(3, run_without_allocating);
  launch_on_nodes({{0, 0, 1, 1, 1}, kSmallPieces})(5, run_without_allocating);
}

TEST(NodeStress, ALongQueueOfOperationsIsWorkedOff) {
  launch_on_nodes({{0, 0, 1}})(3, [](RankContext& c) { queue_many(c, 20, 200); });
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
TEST(NodeStress, ThirtyTwoRanksRunRandomPrograms) {
  std::atomic<int> arrived{0};
  launch_on_nodes({equal_nodes(4, 8)})(32, [&](RankContext& c) { meet_and_sum(c, arrived, 4, 9000); });
}

}  // namespace
}  // namespace trident::conformance
