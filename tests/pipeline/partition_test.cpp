#include "pipeline/schedule/partition.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "core/check.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

std::vector<int> blocks_of_stage(const UnitsOfStage& stages) {
  std::vector<int> counts;
  for (const auto& units : stages) counts.push_back(static_cast<int>(units.size()));
  --counts.front();  // the embedding
  --counts.back();   // the head
  return counts;
}

double largest_cost(const UnitsOfStage& stages, const std::vector<double>& costs) {
  double largest = 0;
  for (const auto& units : stages) {
    double sum = 0;
    for (const int unit : units) sum += costs[static_cast<std::size_t>(unit)];
    largest = std::max(largest, sum);
  }
  return largest;
}

// The least possible largest stage, over all ways to give blocks first..L to the stages left.
double brute_force(const std::vector<double>& costs, int first, int stages_left, double embedding) {
  const int num_layers = static_cast<int>(costs.size()) - 2;
  if (stages_left == 1)
    return std::accumulate(costs.begin() + first, costs.end(), embedding);
  double best = std::numeric_limits<double>::infinity(), stage = embedding;
  for (int end = first + 1; end <= num_layers + 1 - (stages_left - 1); ++end) {
    stage += costs[static_cast<std::size_t>(end - 1)];
    best = std::min(best, std::max(stage, brute_force(costs, end, stages_left - 1, 0)));
  }
  return best;
}

std::vector<double> equal_blocks(int num_layers, double embedding = 0, double head = 0) {
  std::vector<double> costs(static_cast<std::size_t>(num_layers) + 2, 1.0);
  costs.front() = embedding;
  costs.back() = head;
  return costs;
}

TEST(Partition, UnitsAreInModelOrder) {
  EXPECT_EQ(partition_balanced(equal_blocks(4), 2, 1), (UnitsOfStage{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(partition_balanced(equal_blocks(3), 1, 1), (UnitsOfStage{{0, 1, 2, 3, 4}}));
}

TEST(Partition, EmbeddingAndHeadCount) {
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(8, 0, 2), 2, 1)), (std::vector<int>{5, 3}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(6, 1, 1), 4, 1)), (std::vector<int>{1, 2, 2, 1}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(126, 1, 1), 16, 4)).front(), 1);
}

// Among equal maxima: even, then fewest blocks where most micro-batches are in flight.
TEST(Partition, TiesAreBrokenOneWay) {
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(5), 4, 1)), (std::vector<int>{1, 1, 1, 2}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(10), 4, 1)), (std::vector<int>{2, 2, 3, 3}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(10), 2, 2)), (std::vector<int>{2, 2, 3, 3}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(7, 0, 100), 3, 1)), (std::vector<int>{3, 3, 1}));
}

TEST(Partition, IsOptimal) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 400; ++trial) {
    const int num_stages = 1 + static_cast<int>(random() % 4), num_layers = num_stages + static_cast<int>(random() % 5);
    std::vector<double> costs;
    for (int unit = 0; unit < num_layers + 2; ++unit) costs.push_back(static_cast<double>(random() % 8));
    const UnitsOfStage stages = partition_balanced(costs, num_stages, 1);
    EXPECT_EQ(largest_cost(stages, costs), brute_force(costs, 1, num_stages, costs.front()));
    int next = 0;
    for (const int count : blocks_of_stage(stages)) EXPECT_GE(count, 1);
    for (const auto& units : stages)
      for (const int unit : units) EXPECT_EQ(unit, next++);
    EXPECT_EQ(next, num_layers + 2);
  }
}

TEST(Partition, FewerLayersThanStagesIsRefused) {
  const std::string expected =
      "model layers = 7: fewer than parallel.pipeline = 4 x parallel.virtual_stages = 2 stages, and each needs at least one; use a "
      "product of at most 7";
  EXPECT_EQ(error_of<ConfigError>([] { partition_balanced(equal_blocks(7), 4, 2); }), expected);
  EXPECT_EQ(error_of<ConfigError>([] { partition_explicit(std::vector<std::int64_t>{}, 7, 4, 2); }), expected);
}

TEST(Partition, ExplicitCounts) {
  EXPECT_EQ(partition_explicit(std::vector<std::int64_t>{1, 3}, 4, 2, 1), (UnitsOfStage{{0, 1}, {2, 3, 4, 5}}));
}

TEST(Partition, ExplicitCountsAreValidated) {
  const auto error = [](std::vector<std::int64_t> layers) {
    return error_of<ConfigError>([&] { partition_explicit(layers, 8, 2, 2); });
  };
  const std::string remedy = "; give 4 counts of at least 1 that add up to the model's 8 layers, or null for a balanced split";
  EXPECT_EQ(error({4, 4}), "parallel.layers = [4, 4]: 2 counts for parallel.pipeline = 2 x parallel.virtual_stages = 2" + remedy);
  EXPECT_EQ(error({2, 2, 2, 1}), "parallel.layers = [2, 2, 2, 1]: the sum is 7" + remedy);
  EXPECT_EQ(error({2, 2, 2, 3}), "parallel.layers = [2, 2, 2, 3]: the sum is too large" + remedy);
  EXPECT_EQ(error({0, 2, 3, 3}), "parallel.layers = [0, 2, 3, 3]: 0 is less than 1" + remedy);
  expect_parts(error({std::numeric_limits<std::int64_t>::max(), 1, 1, 1}), {"the sum is too large"});
}

}  // namespace
}  // namespace trident
