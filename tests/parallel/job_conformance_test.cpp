// The conformance suite on as many ranks as users have, over nodes whose ranks reach what lies in their node's segment and nothing
// else.
//
// CTest by itself runs a selection of operands at each size; `ctest -C Full` (scripts/test.sh --full) runs the cases named
// Full as well.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "parallel/grid/process_grid.h"
#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/node_ranks.h"

namespace trident::conformance {

namespace {

constexpr MessageOptions kTinyPieces{.chunk_bytes = 4096, .staging_bytes = 1 << 18, .small_bytes = 64, .message_bytes = 3000};

struct Selection {
  int every = 1, first = 0;
  std::int64_t most_elements = 1 << 20, most_of_all_ranks = std::int64_t{1} << 40;
  int most_repetitions = 100;
};

// `outside` of 8 operands lie where the ranks of a node do not reach.
Case on(std::initializer_list<int> ranks_of_nodes, unsigned outside, Selection selection,
        MessageOptions options = NodeLayout{}.options) {
  std::vector<int> nodes;
  for (int node = 0; const int count : ranks_of_nodes) nodes.insert(nodes.end(), static_cast<std::size_t>(count), node++);
  const int ranks = static_cast<int>(nodes.size());
  const NodeLayout layout{.nodes = nodes, .options = options, .timeout_seconds = 240, .outside = outside};
  return {.launch = launch_on_nodes(layout), .ranks = ranks, .nodes = nodes, .every = selection.every, .first = selection.first,
          .most_elements = selection.most_elements, .most_of_all_ranks = selection.most_of_all_ranks,
          .most_repetitions = selection.most_repetitions};
}

std::string name(const ::testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.ranks) + "RanksOn" + std::to_string(info.param.nodes.back() + 1) + "Nodes";
}

constexpr Selection kSome{.every = 5}, kFew{.every = 7, .most_elements = 2049}, kFewer{.every = 17, .most_elements = 2049};
// f32[7] on a queue, and where no operand holds a part of every rank 1,023 elements of two other types and streams; of 520 ranks
// the first alone.
constexpr Selection kOneOfEach{.every = 43, .first = 8, .most_elements = 1023, .most_of_all_ranks = 1 << 12, .most_repetitions = 5};
constexpr Selection kOne{.every = 1000, .first = 8, .most_elements = 1023, .most_of_all_ranks = 1 << 12, .most_repetitions = 3};
// An operand that holds a part of each of 520 ranks has 0, 1 or 7 elements of a rank.
constexpr Selection kShort{.every = 5, .most_elements = 2049, .most_of_all_ranks = 1 << 12};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Mixed, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 4, kSome), on({22, 22, 22}, 4, kFewer)),
                         name);
INSTANTIATE_TEST_SUITE_P(Large, CommunicatorConformance,
                         ::testing::Values(on({33, 33, 32, 32}, 4, kOneOfEach), on({86, 86}, 4, kOneOfEach),
                                         on({130, 130, 130, 130}, 4, kOne)),
                         name);
INSTANTIATE_TEST_SUITE_P(OutOfReach, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 8, kSome)), name);

// Jobs of 130 and 172 ranks exchange control and tensors in every run, too: SizesOfJobs in node_sizes_test.cpp.
INSTANTIATE_TEST_SUITE_P(FullMixed, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 4, {}), on({5, 7}, 4, {}), on({22, 22, 22}, 4, {.most_elements = 2049}),
                                         on({33, 33, 32, 32}, 4, {.every = 3, .most_elements = 2049}),
                                         on({86, 86}, 4, {.every = 7, .most_elements = 2049}),
                                         on({130, 130, 130, 130}, 4, kShort)),
                         name);
INSTANTIATE_TEST_SUITE_P(FullOutOfReach, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 8, {}), on({22, 22, 22}, 8, {.every = 5}), on({33, 33, 32, 32}, 8, kFew)),
                         name);
INSTANTIATE_TEST_SUITE_P(FullTinyPieces, CommunicatorConformance,
                         ::testing::Values(on({4, 4, 4}, 4, {}, kTinyPieces), on({22, 22, 22}, 4, kFew, kTinyPieces)), name);

}  // namespace trident::conformance

namespace trident::conformance {
namespace {

// As many ranks as users have, on nodes, with operands in ordinary memory: what peers do not reach, and what is larger than a post.

constexpr unsigned kAllOutside = 8;

void on_nodes(std::vector<int> nodes, const std::function<void(RankContext&)>& body) {
  const int ranks = static_cast<int>(nodes.size());
  const NodeLayout layout{.nodes = std::move(nodes), .timeout_seconds = 240, .outside = kAllOutside};
  launch_on_nodes(layout)(ranks, body);
}

// As a start-up exchanges it: a line of text and some numbers of every rank, and what one rank says to all.
void exchange_control(RankContext& c) {
  constexpr std::int64_t kLine = 512;
  const int n = c.world.size(), rank = c.world.rank();
  Values line(DType::kU8, kLine, [&](auto i) { return (rank + i) % 251; }), lines(DType::kU8, n * kLine);
  c.world.all_gather(c.compute, lines.view(), line.view());
  expect_values(lines, [&](auto i) { return (i / kLine + i % kLine) % 251; }, "lines");
  Values numbers(DType::kF64, 4, [&](auto i) { return 4 * rank + i; }), all(DType::kF64, 4 * n);
  c.world.all_gather(c.compute, all.view(), numbers.view());
  expect_values(all, [](auto i) { return i; }, "numbers");
  for (const std::int64_t count : {1, 1000, 5000}) {
    Values largest(DType::kI64, count, [&](auto i) { return rank == i % n ? 1000 + i : i; });
    c.world.all_reduce(c.compute, largest.view(), ReduceOp::kMax);
    expect_values(largest, [](auto i) { return 1000 + i; }, "largest");
    Values text(DType::kU8, count, [&](auto i) { return rank == n - 1 ? i % 200 : 7; });
    c.world.broadcast(c.compute, text.view(), n - 1);
    expect_values(text, [](auto i) { return i % 200; }, "text");
  }
}

void move_tensors(RankContext& c, const char* where) {
  const int n = c.world.size(), rank = c.world.rank();
  constexpr std::int64_t kCount = 40;
  Values whole(DType::kF32, n * kCount, [&](auto i) { return (rank + i) % 7; }), slice(DType::kF32, kCount);
  const auto sum = [&](std::int64_t i) {
    double total = 0;
    for (int r = 0; r < n; ++r) total += static_cast<double>((r + i) % 7);
    return total;
  };
  c.world.reduce_scatter(c.compute, slice.view(), whole.view(), ReduceOp::kSum);
  expect_values(slice, [&](auto i) { return sum(rank * kCount + i); }, where);
  c.world.all_reduce(c.compute, whole.view(), ReduceOp::kSum);
  expect_values(whole, sum, where);
  Values in(DType::kI32, n * 3, [&](auto i) { return rank * 3 * n + static_cast<int>(i); }), out(DType::kI32, n * 3);
  c.world.all_to_all(c.compute, out.view(), in.view());
  expect_values(out, [&](auto i) { return i / 3 * 3 * n + rank * 3 + i % 3; }, where);
  Values to(DType::kI64, 3000, [&](auto i) { return rank + i; }), from(DType::kI64, 3000);
  if (n == 1) return;
  const int previous = (rank + n - 1) % n;
  {
    const GroupScope group(c.world);
    c.world.send(*c.queues[0], to.view(), (rank + 1) % n);
    c.world.recv(*c.queues[0], from.view(), previous);
  }
  c.queues[0]->synchronize();
  expect_values(from, [&](auto i) { return previous + i; }, where);
}

// The groups that a run of this grid has, all at once.
void split_as_a_grid(RankContext& c, const ParallelDegrees& degrees) {
  const ProcessGrid grid(degrees);
  ASSERT_EQ(grid.world_size(), c.world.size());
  for (const Axis axis : {Axis::kTensor, Axis::kData, Axis::kPipeline}) {
    const auto group = c.world.split(grid.group(c.world.rank(), grid.whole(axis)), std::string(to_string(axis)));
    ASSERT_EQ(group->size(), grid.degree(axis));
    RankContext part{*group, c.compute, c.queues};
    move_tensors(part, "a group");
  }
}

std::vector<int> nodes_of(std::initializer_list<int> ranks) {
  std::vector<int> nodes;
  for (int node = 0; const int count : ranks) nodes.insert(nodes.end(), static_cast<std::size_t>(count), node++);
  return nodes;
}

struct SizedCase {
  std::vector<int> nodes;
  ParallelDegrees degrees;
};
void PrintTo(const SizedCase& sized, std::ostream* out) { *out << sized.nodes.size() << " ranks"; }

class SizesOfJobs : public ::testing::TestWithParam<SizedCase> {};

TEST_P(SizesOfJobs, ExchangeAnythingFromOrdinaryMemory) {
  on_nodes(GetParam().nodes, [&](RankContext& c) {
    exchange_control(c);
    move_tensors(c, "the world");
    split_as_a_grid(c, GetParam().degrees);
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, SizesOfJobs,
                         ::testing::Values(SizedCase{equal_nodes(3, 4), {.tensor = 2, .data = 3, .pipeline = 2}},
                                         SizedCase{nodes_of({5, 7}), {.tensor = 4, .data = 3, .pipeline = 1}},
                                         SizedCase{equal_nodes(2, 16), {.tensor = 4, .data = 2, .pipeline = 4}},
                                         SizedCase{equal_nodes(3, 22), {.tensor = 2, .data = 11, .pipeline = 3}},
                                         SizedCase{nodes_of({33, 33, 32, 32}), {.tensor = 2, .data = 13, .pipeline = 5}},
                                         SizedCase{equal_nodes(2, 86), {.tensor = 4, .data = 43, .pipeline = 1}}),
                         [](const auto& info) {
                           return std::to_string(info.param.nodes.size()) + "RanksOn" + std::to_string(info.param.nodes.back() + 1);
                         });

// Too many threads for anything but what a start-up does.
TEST(SizesOfJobs, FiveHundredRanksExchangeControl) {
  on_nodes(equal_nodes(4, 130), [](RankContext& c) { exchange_control(c); });
}

}  // namespace
}  // namespace trident::conformance
