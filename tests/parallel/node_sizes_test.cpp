// As many ranks as users have, on nodes, with operands in ordinary memory: what peers do not reach, and what is larger than a post.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "parallel/grid/process_grid.h"
#include "tests/parallel/node_ranks.h"

namespace trident::conformance {
namespace {

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
