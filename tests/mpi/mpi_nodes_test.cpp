// What ranks say to each other before they have communicators, over MPI, and which of them share a node.
#include "parallel/mpi/mpi_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/mpi/mpi_session.h"

namespace trident::conformance {
namespace {

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

    // Of different lengths, with zeros in them, and longer than MPI sends at once.
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
  const MpiGroup world = MpiGroup::of(copy);
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
  const MpiGroup world = MpiGroup::of(copy);
  // Each rank is a node.
  const NodeHosts alone(world, world.split(job.rank()), fmt::format("h{}", 10 * job.rank()), NodeSegment::create(1 << 20));
  for (int n = 0; n < job.size(); ++n) EXPECT_EQ(alone.of(n), fmt::format("h{}", 10 * n));
}

}  // namespace
}  // namespace trident::conformance
