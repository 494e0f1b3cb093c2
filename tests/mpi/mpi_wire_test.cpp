// Messages over MPI, cut into pieces of 1000 bytes by the job's --piece-bytes=1000. Each rank sends to the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "device/no_allocation.h"
#include "parallel/mpi/mpi_nodes.h"
#include "tests/mpi/mpi_session.h"
#include "tests/support/error_text.h"

namespace trident::conformance {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MpiWire : public ::testing::Test {
 protected:
  std::int32_t channel(int number) const { return 20000 + number; }  // away from those of communicators
  void finish(Wire::Request request) {
    const double give_up = monotonic_seconds() + 30;
    while (!wire.test(request)) ASSERT_LT(monotonic_seconds(), give_up) << "a message that never arrives";
  }
  static std::vector<std::byte> message(int from, std::int64_t bytes, int seed) {
    std::vector<std::byte> data(static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from * 31 + seed) + i / 1000);
    return data;
  }

  ProcessWorld& world = MpiSession::current().world();
  Wire& wire = world.wire();
  const int rank = world.rank(), size = world.size(), next = (rank + 1) % size, previous = (rank + size - 1) % size;
};

TEST_F(MpiWire, CarriesEverySize) {
  for (const std::int64_t bytes : {0, 1, 999, 1000, 1001, 2000, 2500, 123'456}) {
    const std::vector<std::byte> out = message(rank, bytes, 1);
    std::vector<std::byte> in(out.size());
    const auto sent = wire.send(out.data(), bytes, next, channel(0));
    const auto received = wire.recv(in.data(), bytes, previous, channel(0));
    finish(received);
    finish(sent);
    EXPECT_EQ(in, message(previous, bytes, 1)) << bytes << " bytes";
  }
}

// More pieces than the wire has reserved entries for, all in flight at once, in a scope where nothing may allocate.
TEST_F(MpiWire, KeepsTheOrderOfAChannel) {
  constexpr int kMessages = 1500;
  const auto bytes = [](int k) { return std::int64_t{k % 3 * 1100 + 10}; };
  std::vector<std::vector<std::byte>> out, in;
  std::vector<Wire::Request> requests;
  for (int k = 0; k < kMessages; ++k) {
    out.push_back(message(rank, bytes(k), k));
    in.emplace_back(out.back().size());
  }
  requests.reserve(2 * kMessages);
  {
    const NoAllocationScope scope("messages");
    for (std::size_t k = 0; k < kMessages; ++k)
      requests.push_back(wire.send(out[k].data(), static_cast<std::int64_t>(out[k].size()), next, channel(1)));
    for (std::size_t k = 0; k < kMessages; ++k)
      requests.push_back(wire.recv(in[k].data(), static_cast<std::int64_t>(in[k].size()), previous, channel(1)));
  }
  for (auto request = requests.rbegin(); request != requests.rend(); ++request) finish(*request);
  for (int k = 0; k < kMessages; ++k) ASSERT_EQ(in[static_cast<std::size_t>(k)], message(previous, bytes(k), k)) << "message " << k;
}

TEST_F(MpiWire, KeepsChannelsApart) {
  const std::vector<std::byte> first = message(rank, 50, 1), second = message(rank, 50, 2);
  std::vector<std::byte> a(50), b(50);
  const auto sent_first = wire.send(first.data(), 50, next, channel(2)),
             sent_second = wire.send(second.data(), 50, next, channel(3));
  finish(wire.recv(b.data(), 50, previous, channel(3)));
  finish(wire.recv(a.data(), 50, previous, channel(2)));
  finish(sent_first);
  finish(sent_second);
  EXPECT_EQ(a, message(previous, 50, 1));
  EXPECT_EQ(b, message(previous, 50, 2));
}

TEST_F(MpiWire, CountsWhatItSends) {
  const std::int64_t before = wire.bytes_sent();
  std::vector<std::byte> out(3500), in(3500);
  const auto sent = wire.send(out.data(), 3500, next, channel(4)), empty = wire.send(nullptr, 0, next, channel(4));
  finish(wire.recv(in.data(), 3500, previous, channel(4)));
  finish(wire.recv(nullptr, 0, previous, channel(4)));
  finish(sent);
  finish(empty);
  EXPECT_EQ(wire.bytes_sent() - before, 3500);
  EXPECT_EQ(world.inter_node_bytes(), wire.bytes_sent());
}

// Whatever the two sizes are, the receiver notices.
TEST_F(MpiWire, NamesThePeerThatSentAnotherSize) {
  int number = 5;
  for (const auto& [sent, expected] : {std::pair<std::int64_t, std::int64_t>{8, 4},
                                       {4, 8},
                                       {0, 1},
                                       {1500, 1000},
                                       {1000, 1500},
                                       {2000, 1000},
                                       {1000, 2000},
                                       {3000, 100},
                                       {100, 3000}}) {
    const std::int32_t own = channel(number++);
    std::vector<std::byte> out(3000), in(3000);
    const auto sending = wire.send(out.data(), sent, next, own);
    const auto receiving = wire.recv(in.data(), expected, previous, own);
    EXPECT_THAT(error_of<CommunicationError>([&] { finish(receiving); }),
                AllOf(HasSubstr(fmt::format("rank {}: recv of {} bytes from rank {} on host ", rank, expected, previous)),
                      HasSubstr(sent > expected ? "the peer sent more" : "the peer sent less")))
        << sent << " sent, " << expected << " expected";
    finish(sending);
    world.all_gather("");  // `in` and `out` stay until nobody uses them
  }
}

// A message that nobody answers is called off: the next one goes to who asks for it then, and nothing is written where it no longer
// belongs.
TEST_F(MpiWire, AbandonsWhatIsInFlight) {
  std::vector<std::byte> early(2500, std::byte{7}), in(2500), more(2500);
  const std::vector<std::byte> out = message(rank, 2500, 3);
  wire.recv(early.data(), 2500, previous, channel(30));
  wire.send(out.data(), 2500, next, channel(31));
  wire.abandon();
  world.all_gather("");
  const auto sent = wire.send(out.data(), 2500, next, channel(30));
  finish(wire.recv(in.data(), 2500, previous, channel(30)));
  finish(wire.recv(more.data(), 2500, previous, channel(31)));
  finish(sent);
  EXPECT_EQ(in, message(previous, 2500, 3));
  EXPECT_EQ(more, in) << "what has left, arrives";
  EXPECT_EQ(early, std::vector<std::byte>(2500, std::byte{7}));
  world.all_gather("");  // `out` stays until nobody uses it
}

TEST_F(MpiWire, RefusesWhatIsNoMessageBetweenTwoRanks) {
  std::byte byte{};
  EXPECT_THAT(error_of<InternalError>([&] { wire.send(&byte, 1, rank, channel(0)); }), HasSubstr("a message between ranks"));
  EXPECT_THAT(error_of<InternalError>([&] { wire.recv(&byte, 1, size, channel(0)); }), HasSubstr("a message between ranks"));
  EXPECT_THAT(error_of<InternalError>([&] { wire.recv(&byte, 1, next, -1); }), HasSubstr("1 bytes on channel -1"));
  EXPECT_THAT(error_of<InternalError>([&] { wire.send(&byte, -1, next, 0); }), HasSubstr("-1 bytes on channel 0"));
}

TEST_F(MpiWire, WorldKnowsWhoIsWhere) {
  const std::string mine = rank % 2 == 0 ? std::string(static_cast<std::size_t>(100 * rank), 'a') : std::string("b\0c", 3);
  const std::vector<std::string> texts = world.all_gather(mine);
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r)
    EXPECT_EQ(texts[static_cast<std::size_t>(r)],
              r % 2 == 0 ? std::string(static_cast<std::size_t>(100 * r), 'a') : std::string("b\0c", 3));

  ASSERT_EQ(world.nodes().size(), static_cast<std::size_t>(size));
  const auto node_of = [&](int r) { return world.nodes()[static_cast<std::size_t>(r)]; };
  EXPECT_EQ(node_of(0), 0);
  EXPECT_EQ(world.local_size(), std::count(world.nodes().begin(), world.nodes().end(), node_of(rank)));
  EXPECT_EQ(world.local_rank(), std::count(world.nodes().begin(), world.nodes().begin() + rank, node_of(rank)));
  for (int r = 1; r < size; ++r) EXPECT_LE(node_of(r), *std::max_element(world.nodes().begin(), world.nodes().begin() + r) + 1);
  const int num_nodes = *std::max_element(world.nodes().begin(), world.nodes().end()) + 1;
  EXPECT_THAT(world.describe(),
              HasSubstr(fmt::format(": {} ranks on {} node{}, shared memory in ", size, num_nodes, num_nodes == 1 ? "" : "s")));
}

TEST_F(MpiWire, WorldIsJoinedOnce) {
  EXPECT_THAT(error_of<InternalError>([] { join_process_world(); }), HasSubstr("a process joins its job once"));
}

// Ranks talk to each other over MPI before they have communicators, and know which of them share a node.

TEST(MpiRendezvous, BringsTogetherWhatRanksSay) {
  ProcessWorld& world = MpiSession::current().world();
  for (Rendezvous* ranks : {static_cast<Rendezvous*>(&world), &world.node()}) {
    const int rank = ranks->rank(), size = ranks->size();
    std::array<std::int64_t, 3> sums{rank, std::int64_t{1} << 40, -rank}, most{rank, -5 - rank, std::int64_t{1} << 40};
    ranks->all_reduce(sums, ReduceOp::kSum);
    ranks->all_reduce(most, ReduceOp::kMax);
    EXPECT_EQ(sums, (std::array<std::int64_t, 3>{size * (size - 1) / 2, size * (std::int64_t{1} << 40), -size * (size - 1) / 2}));
    EXPECT_EQ(most, (std::array<std::int64_t, 3>{size - 1, -5, std::int64_t{1} << 40}));

    EXPECT_EQ(first_rank(*ranks, rank >= size / 2), size / 2);
    EXPECT_EQ(first_rank(*ranks, false), -1);
    EXPECT_EQ(first_rank(*ranks, true), 0);

    // The messages have different lengths, zeros in them, and more than MPI sends at once.
    const auto text_of = [](int r) {
      return r % 3 == 1 ? std::string() : std::string("b\0c", 3) + std::string(static_cast<std::size_t>(100'000 * r), 'a');
    };
    for (int root = 0; root < size; ++root) EXPECT_EQ(ranks->broadcast(text_of(rank), root), text_of(root));
    const std::vector<std::string> texts = ranks->gather(text_of(rank));
    ASSERT_EQ(texts.size(), rank == 0 ? static_cast<std::size_t>(size) : 0u);
    for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], text_of(static_cast<int>(r)));
  }
}

// Ranks dealt out in blocks, the last of which may be smaller, in turn, and otherwise.
TEST(MpiNodes, AreNumberedByTheirLowestRanks) {
  const ProcessWorld& job = MpiSession::current().world();
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  const MpiGroup world(copy);
  const auto placed = [&](const std::function<int(int)>& node_of) {
    std::vector<int> expected, colors;  // colors in the order of their first ranks
    for (int r = 0; r < job.size(); ++r) {
      const auto found = std::find(colors.begin(), colors.end(), node_of(r));
      expected.push_back(static_cast<int>(found - colors.begin()));
      if (found == colors.end()) colors.push_back(node_of(r));
    }
    EXPECT_EQ(number_nodes(world, world.split(node_of(job.rank()))), expected);
  };
  placed([](int) { return 7; });
  placed([](int r) { return 9 - r; });
  placed([](int r) { return r / 2; });
  placed([](int r) { return r % 2; });
  placed([](int r) { return r == 0 ? 3 : 1; });
  placed([](int r) { return r == 1 || r == 4 ? 0 : 5; });
}

TEST(MpiNodes, AreCalledByName) {
  const ProcessWorld& job = MpiSession::current().world();
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  const MpiGroup world(copy);
  // Each rank is a node.
  const NodeHosts alone(world, world.split(job.rank()), fmt::format("h{}", 10 * job.rank()), NodeSegment::create(1 << 20));
  for (int n = 0; n < job.size(); ++n) EXPECT_EQ(alone.of(n), fmt::format("h{}", 10 * n));
}

}  // namespace
}  // namespace trident::conformance
