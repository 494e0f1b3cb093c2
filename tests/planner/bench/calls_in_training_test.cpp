// How tables of calls alone are brought to what the same calls took in training.
#include "planner/bench/calls_in_training.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace trident {
namespace {

LogTable flat(std::size_t axes, double seconds) {
  std::vector<std::vector<double>> sizes(axes, {64, 1024});
  return {sizes, std::vector<double>(std::size_t{1} << axes, seconds), std::vector<double>(axes, 1)};
}

CpuRates rates_of_two() {
  CpuRates rates;
  for (const int threads : {1, 2}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Transpose a : {Transpose::kNo, Transpose::kYes})
        rates.products.push_back({threads, dtype, a, Transpose::kNo, Accumulate::kNo, flat(3, 1e-5), "s"});
      rates.attention.push_back({threads, dtype, "attention_forward", flat(2, 1e-5), "s"});
    }
  }
  return rates;
}

CallTimes product(Transpose a, double bytes, double seconds) {
  return {"matmul", bytes, MatmulShape{128, 128, 128, a, Transpose::kNo, DType::kF32, DType::kF32, Accumulate::kNo},
          std::vector<double>(5, seconds)};
}

CallTimes attention(double seconds) {
  AttentionShape shape;
  shape.batch = 2, shape.query_heads = 4, shape.query_length = shape.key_length = 128, shape.head_dim = 50;
  return {"attention_forward", 1e5, shape, std::vector<double>(5, seconds)};
}

TEST(CallsInTraining, CountOneThatWasDisturbedAsThriceTheMedian) {
  EXPECT_DOUBLE_EQ(typical_seconds({1, 2, 1, 1, 90}, 1), (1 + 2 + 1 + 1 + 3) / 5.0);
  EXPECT_DOUBLE_EQ(typical_seconds({1, 2, 1, 1, 90}, 2), 1);
  EXPECT_DOUBLE_EQ(typical_seconds({4}, 1), 4);
  EXPECT_ANY_THROW(typical_seconds({}, 1));
}

TEST(CallsInTraining, AreKeptByOperationBytesAndShape) {
  CallMeter meter;
  for (const double seconds : {1.0, 2.0}) meter.add(product(Transpose::kNo, 1000, seconds));
  meter.add(product(Transpose::kYes, 1000, 3));
  meter.add(attention(4));
  const std::vector<CallTimes> calls = meter.calls();
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[1].seconds.size(), 10U);
  EXPECT_EQ(calls[2].seconds, std::vector<double>(5, 3.0));
}

TEST(CallsInTraining, PointsNearEachOtherAreOne) {
  const std::vector<std::pair<double, double>> points{{100, 1}, {121, 4}, {200, 9}};
  const auto [sizes, values] = merged(points);
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_NEAR(sizes[0], 110, 1e-9);
  EXPECT_NEAR(values[0], 2, 1e-12);
  EXPECT_NEAR(values[1], 9, 1e-12);
}

TEST(CallsInTraining, ScaleTheTablesOfTheirKindAndNoOther) {
  CpuRates rates = rates_of_two();
  const std::vector<CallTimes> calls{product(Transpose::kNo, 2e5, 2.1e-5), attention(8 * 3e-5 + 1e-6)};
  fit_to_training(calls, 1e-6, 1, DType::kF32, rates);
  const std::array<double, 3> sides{128, 128, 128};
  for (const ProductTimes& t : rates.products) {
    const bool fitted = t.threads == 1 && t.in == DType::kF32 && t.transpose_a == Transpose::kNo;
    EXPECT_NEAR(t.seconds.at(sides), fitted ? 2e-5 : 1e-5, 1e-10) << t.threads << to_string(t.in);
  }
  const std::array<double, 2> sizes{128, 64};
  for (const AttentionTimes& t : rates.attention)
    EXPECT_NEAR(t.seconds_per_head.at(sizes), t.threads == 1 && t.dtype == DType::kF32 ? 3e-5 : 1e-5, 1e-10);
}

// Ranks of several threads take the cores from each other: calls of several took twice as long by the clock.
TEST(CallsInTraining, OfDividedModelsCountWhereNobodyElseHasThem) {
  CallTimes split{"split_loss", 100, {}, {4e-6}}, norm{"norm", 100, {}, {9e-6}};
  const std::vector<CallTimes> alone{{"norm", 200, {}, {2e-6}}}, divided{norm, split};
  EXPECT_EQ(calls_beside(alone, divided, 1).size(), 2U);
  const std::vector<CallTimes> of_two_threads = calls_beside(alone, divided, 2);
  ASSERT_EQ(of_two_threads.size(), 1U);
  EXPECT_EQ(of_two_threads.front().operation, "split_loss");
  EXPECT_EQ(of_two_threads.front().seconds, split.seconds);
}

TEST(CallsInTraining, GradientsThatAreAddedUpAreFittedApart) {
  CpuRates rates = rates_of_two();
  rates.products.push_back({1, DType::kF32, Transpose::kYes, Transpose::kNo, Accumulate::kYes, flat(3, 1e-5), "s"});
  CallTimes first = product(Transpose::kYes, 2e5, 2e-5), later = product(Transpose::kYes, 3e5, 5e-5);
  std::get<MatmulShape>(later.shape).accumulate = Accumulate::kYes;
  fit_to_training(std::vector{first, later}, 0, 1, DType::kF32, rates);
  const std::array<double, 3> sides{128, 128, 128};
  for (const ProductTimes& t : rates.products) {
    if (t.threads != 1 || t.in != DType::kF32 || t.transpose_a == Transpose::kNo) continue;
    EXPECT_NEAR(t.seconds.at(sides), t.accumulate == Accumulate::kYes ? 5e-5 : 2e-5, 1e-10);
  }
}

// Small products have their operands at hand, where calls alone read theirs from afar: each size has its own ratio.
TEST(CallsInTraining, RatiosGoByBytes) {
  CpuRates rates = rates_of_two();
  fit_to_training(std::vector{product(Transpose::kNo, 49152, 0.5e-5), product(Transpose::kNo, 1e7, 1.5e-5)}, 0, 1, DType::kF32,
                  rates);
  const std::array<double, 3> small{64, 64, 64}, large{1024, 1024, 1024};
  EXPECT_NEAR(rates.products.front().seconds.at(small), 0.5e-5, 0.02e-5);
  EXPECT_NEAR(rates.products.front().seconds.at(large), 1.5e-5, 0.02e-5);
}

}  // namespace
}  // namespace trident
