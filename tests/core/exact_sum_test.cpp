#include "core/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace trident {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

double exact_sum(const std::vector<double>& xs) {
  ExactSum sum;
  sum.add(xs);
  return sum.value();
}

// Shewchuk's non-overlapping partial sums, correctly rounded at the end (as in Python's math.fsum): another algorithm altogether.
double shewchuk_sum(const std::vector<double>& xs) {
  std::vector<double> partials;
  for (double x : xs) {
    std::size_t kept = 0;
    for (double y : partials) {
      if (std::abs(x) < std::abs(y)) std::swap(x, y);
      const double high = x + y;
      const double low = y - (high - x);
      if (low != 0.0) partials[kept++] = low;
      x = high;
    }
    partials.resize(kept);
    partials.push_back(x);
  }
  if (partials.empty()) return 0.0;
  std::size_t n = partials.size();
  double high = partials[--n], low = 0.0;
  while (n > 0) {
    const double x = high, y = partials[--n];
    high = x + y;
    low = y - (high - x);
    if (low != 0.0) break;
  }
  // A tie that the remaining partials decide.
  if (n > 0 && ((low < 0.0 && partials[n - 1] < 0.0) || (low > 0.0 && partials[n - 1] > 0.0))) {
    const double y = low * 2.0, x = high + y;
    if (y == x - high) high = x;
  }
  return high;
}

std::vector<double> random_numbers(std::mt19937_64& random, int count, int min_exponent, int max_exponent) {
  std::uniform_real_distribution<double> mantissa(-1.0, 1.0);
  std::uniform_int_distribution<int> exponent(min_exponent, max_exponent);
  std::vector<double> xs(static_cast<std::size_t>(count));
  for (double& x : xs) x = std::ldexp(mantissa(random), exponent(random));
  return xs;
}

TEST(ExactSum, NothingIsZero) {
  EXPECT_EQ(bits(ExactSum().value()), bits(0.0));
  EXPECT_EQ(bits(exact_sum({-0.0, -0.0})), bits(0.0)) << "a fixed-point zero has no sign";
}

TEST(ExactSum, OneNumberComesBack) {
  std::mt19937_64 random(1);
  std::vector<double> xs = random_numbers(random, 2000, -1074, 1023);
  for (const double x :
       {1.0, std::numeric_limits<double>::max(), std::numeric_limits<double>::min(), std::numeric_limits<double>::denorm_min(),
        0x1.fffffffffffffp-1023, 0x1p-1022, 0x1.5p31, 0x1.fffffffffffffp52})
    xs.push_back(x), xs.push_back(-x);
  for (const double x : xs) EXPECT_EQ(bits(exact_sum({x})), bits(x == 0.0 ? 0.0 : x)) << x;
}

TEST(ExactSum, CancelsExactly) {
  EXPECT_EQ(exact_sum({1e300, 1.0, -1e300}), 1.0);
  EXPECT_EQ(exact_sum({1e308, 1e308, -1e308, -1e308, 5e-324}), 5e-324);
  EXPECT_EQ(exact_sum({0x1p1023, -0x1p-1074, -0x1p1023}), -0x1p-1074);
}

TEST(ExactSum, RoundsToNearestTiesToEven) {
  EXPECT_EQ(exact_sum({1.0, 0x1p-53}), 1.0) << "a tie goes to the even mantissa";
  EXPECT_EQ(exact_sum({1.0, 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51) << "a tie at an odd mantissa goes up";
  EXPECT_EQ(exact_sum({1.0, 0x1p-53, 0x1p-1074}), 1.0 + 0x1p-52) << "the last bit, 1000 places below, decides";
  EXPECT_EQ(exact_sum({-1.0, -0x1p-53, -0x1p-1074}), -1.0 - 0x1p-52);
  EXPECT_EQ(exact_sum({1.0, 0x1p-53, -0x1p-1074}), 1.0);
  EXPECT_EQ(exact_sum({0x1.fffffffffffffp0, 0x1p-53}), 2.0) << "rounding up may carry into a new bit";
}

TEST(ExactSum, AgreesWithShewchuk) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    const int spread = round % 3 == 0 ? 8 : round % 3 == 1 ? 60 : 400;
    std::vector<double> xs = random_numbers(random, 1 + round, -spread, spread);
    EXPECT_EQ(bits(exact_sum(xs)), bits(shewchuk_sum(xs))) << "round " << round;
  }
}

TEST(ExactSum, AgreesWithWideIntegers) {
  std::mt19937_64 random(3);
  __int128 exact = 0;
  ExactSum sum;
  for (int i = 0; i < 5000; ++i) {
    const auto x = static_cast<std::int64_t>(random()) >> 11;  // 53 bits: a double holds it
    const int shift = static_cast<int>(random() % 40);
    exact += static_cast<__int128>(x) << shift;
    sum.add(std::ldexp(static_cast<double>(x), shift - 20));
    if (i % 50 == 0) {
      ASSERT_EQ(bits(sum.value()), bits(std::ldexp(static_cast<double>(exact), -20))) << i;
    }
  }
}

TEST(ExactSum, OrderAndSplitDoNotMatter) {
  std::mt19937_64 random(4);
  std::vector<double> xs = random_numbers(random, 500, -300, 300);
  const double expected = exact_sum(xs);
  ExactSum whole;
  whole.add(xs);
  whole.normalise();
  for (int round = 0; round < 50; ++round) {
    std::shuffle(xs.begin(), xs.end(), random);
    std::vector<ExactSum> ranks(1 + static_cast<std::size_t>(round) % 8);
    for (const double x : xs) ranks[random() % ranks.size()].add(x);
    ExactSum merged;
    for (const ExactSum& rank : ranks) merged.merge(rank);
    EXPECT_EQ(bits(merged.value()), bits(expected));
    merged.normalise();
    EXPECT_TRUE(std::ranges::equal(merged.limbs(), whole.limbs())) << "equal sums have equal limbs";
  }
}

TEST(ExactSum, IntegerAllReduceOfLimbsIsTheSum) {
  std::mt19937_64 random(5);
  const std::vector<double> xs = random_numbers(random, 256, -100, 100);
  std::vector<ExactSum> ranks(8);
  for (std::size_t i = 0; i < xs.size(); ++i) ranks[i % 8].add(xs[i]);
  ExactSum reduced;
  for (ExactSum& rank : ranks) {
    rank.normalise();
    for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) reduced.limbs()[i] += rank.limbs()[i];
  }
  EXPECT_EQ(bits(reduced.value()), bits(exact_sum(xs)));
}

TEST(ExactSum, NormaliseKeepsTheValueAndBoundsTheDigits) {
  ExactSum sum;
  for (int i = 0; i < 1000; ++i) sum.add(-1.0 - i), sum.add(0x1p-1074);
  const double before = sum.value();
  sum.normalise();
  EXPECT_EQ(bits(sum.value()), bits(before));
  for (std::size_t i = 0; i + 1 < ExactSum::kDigits; ++i) {
    EXPECT_GE(sum.limbs()[i], 0);
    EXPECT_LT(sum.limbs()[i], std::int64_t{1} << 32);
  }
  sum.normalise();
  EXPECT_EQ(bits(sum.value()), bits(before));
}

// 2^40 additions cannot be run; doubling an accumulator 40 times makes the same carries necessary.
TEST(ExactSum, SurvivesMoreAdditionsThanADigitHolds) {
  ExactSum sum;
  sum.add(0x1.fffffffffffffp20);
  for (int i = 0; i < 40; ++i) {
    const ExactSum copy = sum;
    sum.merge(copy);
  }
  EXPECT_EQ(sum.value(), 0x1.fffffffffffffp60);
  ExactSum negated;
  for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) negated.limbs()[i] = -sum.limbs()[i];
  EXPECT_EQ(negated.value(), -0x1.fffffffffffffp60) << "limbs of any sign are a number";
}

TEST(ExactSum, OverflowIsInfinityOnlyInTheResult) {
  const double max = std::numeric_limits<double>::max();
  EXPECT_EQ(exact_sum({max, max}), kInfinity);
  EXPECT_EQ(exact_sum({-max, -max}), -kInfinity);
  EXPECT_EQ(exact_sum({max, max, -max}), max) << "no overflow on the way";
}

TEST(ExactSum, SpecialValues) {
  EXPECT_EQ(exact_sum({1.0, kInfinity}), kInfinity);
  EXPECT_EQ(exact_sum({-kInfinity, 1e308}), -kInfinity);
  EXPECT_TRUE(std::isnan(exact_sum({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(exact_sum({std::nan(""), 1.0, kInfinity})));
  ExactSum clean, infected;
  clean.add(1.0);
  EXPECT_TRUE(clean.finite());
  infected.add(std::nan(""));
  EXPECT_FALSE(infected.finite());
  clean.merge(infected);
  EXPECT_FALSE(clean.finite()) << "one rank's NaN reaches the sum";
  EXPECT_TRUE(std::isnan(clean.value()));
}

}  // namespace
}  // namespace trident
