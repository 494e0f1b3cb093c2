// What crosses nodes: exactly the bytes that must, in messages of bounded size.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <numeric>

#include "parallel/transport/message_communicator.h"
#include "tests/parallel/node_ranks.h"

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
  // Of five the first joins the second, four double, and the second tells the first.
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
      const std::int64_t headers = checks == CollectiveChecks::kOn ? 2 * static_cast<std::int64_t>(sizeof(MessageHeader)) : 0;
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

}  // namespace
}  // namespace trident::conformance
