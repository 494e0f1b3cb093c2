#include "core/f16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "core/at.h"
#include "core/dtype.h"
#include "core/exact_sum.h"
#include "core/normals.h"
#include "core/philox.h"

namespace trident {
namespace {

constexpr float kInfinityF = std::numeric_limits<float>::infinity();

static_assert(dtype_of<f16> == DType::kF16 && sizeof(f16) == size_of(DType::kF16));

f16 half(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }
bool is_nan(f16 x) { return (x.bits & 0x7fffu) > 0x7c00u; }

// sign * mantissa * 2^exponent by the definition of the format.
double value_by_definition(f16 x) {
  const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? static_cast<double>(kInfinityF)
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return (x.bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

TEST(F16, EveryHalfHasItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 x = half(bits);
    if (is_nan(x)) {
      const f16 back = to_f16(to_float(x));
      ASSERT_TRUE(std::isnan(to_float(x))) << bits;
      ASSERT_EQ(back.bits, bits | 0x0200u) << "the same NaN, quiet";
      continue;
    }
    ASSERT_EQ(static_cast<double>(to_float(x)), value_by_definition(x)) << bits;
    ASSERT_EQ(to_f16(to_float(x)).bits, bits) << "with its sign, zero's too";
  }
}

// Between every two neighbours: the float in their middle goes to the even one, its neighbours to the nearer one.
TEST(F16, RoundsToTheNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bffu; ++bits) {
    const float low = to_float(half(bits)), high = to_float(half(bits + 1)), middle = (low + high) / 2;
    const std::uint32_t even = bits + (bits & 1u);
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(to_f16(s * middle).bits, sign | even) << bits;
      ASSERT_EQ(to_f16(s * std::nextafter(middle, 0.0f)).bits, sign | bits) << bits;
      ASSERT_EQ(to_f16(s * std::nextafter(middle, kInfinityF)).bits, sign | (bits + 1)) << bits;
      ASSERT_EQ(to_f16(s * std::nextafter(high, 0.0f)).bits, sign | (bits + 1)) << bits;
    }
  }
}

TEST(F16, BeyondTheLargestIsInfinity) {
  EXPECT_EQ(to_f16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bffu);
  for (const float x : {65520.0f, 65536.0f, 1e20f, std::numeric_limits<float>::max(), kInfinityF}) {
    EXPECT_EQ(to_f16(x).bits, 0x7c00u) << x;
    EXPECT_EQ(to_f16(-x).bits, 0xfc00u) << x;
  }
}

TEST(F16, BelowTheSmallestIsZeroWithASign) {
  for (const float x : {0x1p-25f, 1e-20f, std::numeric_limits<float>::denorm_min(), 0.0f}) {
    EXPECT_EQ(to_f16(x).bits, 0x0000u) << x;
    EXPECT_EQ(to_f16(-x).bits, 0x8000u) << x;
  }
  EXPECT_EQ(to_f16(std::nextafter(0x1p-25f, 1.0f)).bits, 1u);
}

TEST(F16, NaNStaysNaN) {
  // The first has its payload where f16 has no bits.
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffbfffffu}) {
    const f16 x = to_f16(std::bit_cast<float>(bits));
    EXPECT_TRUE(is_nan(x)) << bits;
    EXPECT_EQ(x.bits >> 15, bits >> 31) << bits;
  }
}

// The compiler has a conversion of its own.
TEST(F16, IsWhatTheCompilerConverts) {
  const PhiloxKey key{1, 2};
  for (std::uint32_t i = 0; i < 250000; ++i) {
    for (std::uint32_t bits : philox4x32({i, 0, 0, 0}, key)) {
      if (i % 2 == 0) bits = (bits & 0x87ffffffu) | 0x30000000u;  // every second near the range of f16
      const float x = std::bit_cast<float>(bits);
      if (std::isnan(x)) continue;
      const auto expected = static_cast<_Float16>(x);
      std::uint16_t expected_bits = 0;
      std::memcpy(&expected_bits, &expected, sizeof expected_bits);
      ASSERT_EQ(to_f16(x).bits, expected_bits) << x;
    }
  }
}

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

// Numbers that are far from each other, numbers of about one size, of which many have one exponent, and numbers about the smallest;
// each with both ends of the range, where the large ones cancel. So many at once are summed by exponents.
TEST(ExactSum, OrderAndSplitDoNotMatter) {
  constexpr double kMax = std::numeric_limits<double>::max(), kMin = std::numeric_limits<double>::denorm_min();
  std::mt19937_64 random(4);
  for (const auto& [lowest, highest] : {std::pair{-1020, 1020}, {-300, 300}, {-40, 40}, {-1074, -1010}}) {
    std::vector<double> xs{-kMax, kMax, kMax, -kMax / 2, -kMax / 2, kMin, kMin, -kMin, 0x1.fp-1023, -0x1.fp-1023, -0x1.1p-1024};
    for (const double x : random_numbers(random, 1500, lowest, highest)) xs.push_back(x);
    const double expected = shewchuk_sum(xs);
    ExactSum whole;
    whole.add(xs);
    EXPECT_EQ(bits(whole.value()), bits(expected));
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
    const auto with = [&](double first, double last) {
      xs.front() = first, xs.back() = last;
      ExactSum one_by_one;
      for (const double x : xs) one_by_one.add(x);
      EXPECT_EQ(bits(exact_sum(xs)), bits(one_by_one.value()));
      return exact_sum(xs);
    };
    EXPECT_EQ(with(1, kInfinity), kInfinity);
    EXPECT_EQ(with(-kInfinity, 1), -kInfinity);
    EXPECT_TRUE(std::isnan(with(-kInfinity, kInfinity)));
    EXPECT_TRUE(std::isnan(with(1, std::nan(""))));
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

TEST(ExactSum, SpecialValuesFollowIeee) {
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

// Random numbers that are pure functions of key and counter.

// Random123's known answers for philox4x32-10 (examples/kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Box-Muller written out for one number, from the words of its counter.
float one_normal(PhiloxKey key, std::uint64_t index) {
  const PhiloxCounter w =
      philox4x32({static_cast<std::uint32_t>(index / 4), static_cast<std::uint32_t>(index / 4 >> 32), 0, 0}, key);
  const std::size_t first = index % 4 < 2 ? 0 : 2;
  const double radius = std::sqrt(-2 * std::log((w[first] + 1.0) / 4294967296.0)),
               angle = 2 * std::acos(-1.0) * (w[first + 1] / 4294967296.0);
  return static_cast<float>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

TEST(Philox, NormalsDoNotDependOnWhatWasDrawnBefore) {
  const PhiloxKey key = random_key(7, RandomPurpose::kTest, "normals");
  Normals normals(key);
  for (const std::uint64_t index :
       {0ull, 1ull, 2ull, 3ull, 4ull, 7ull, 6ull, 0ull, 5ull, 1ull << 40, (1ull << 40) + 3, 9ull, ~0ull}) {
    const float expected = one_normal(key, index);
    EXPECT_EQ(Normals(key).at(index), expected) << index;
    EXPECT_EQ(normals.at(index), expected) << index;
  }
}

// Vectors compute them, and must say where a float's last bit is not theirs to decide: as for these numbers, found by trying.
TEST(Philox, NormalsHaveTheBitsOfTheMathLibrary) {
  const PhiloxKey key = random_key(7, RandomPurpose::kTest, "doubts");
  Normals normals(key);
  for (const std::uint64_t index : {4019951ull, 19881406ull, 20731570ull, 27972034ull, 29161358ull, 30159456ull, 34166208ull})
    EXPECT_EQ(normals.at(index), one_normal(key, index)) << index;
  for (const DrawNormals draw : vector_normals()) {
    std::array<float, Normals::kAtOnce> drawn{};
    for (std::uint64_t block = 1ull << 32; block < (1ull << 32) + 50000; block += Normals::kAtOnce / 4) {
      ASSERT_TRUE(draw(block, key, drawn.data())) << block;
      for (std::size_t i = 0; i < drawn.size(); ++i) ASSERT_EQ(drawn[i], one_normal(key, 4 * block + i)) << block << ", " << i;
    }
    EXPECT_FALSE(draw(4019951 / Normals::kAtOnce * (Normals::kAtOnce / 4), key, drawn.data()));
  }
}

TEST(Philox, NormalsAreNormal) {
  Normals normals(random_key(7, RandomPurpose::kTest, 1));
  constexpr int kCount = 100000;
  double sum = 0, squares = 0, neighbours = 0, before = 0;
  int beyond_two = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = double{normals.at(static_cast<std::uint64_t>(i))};
    sum += x;
    squares += x * x;
    neighbours += x * before;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
    before = x;
  }
  const double sigma = 1 / std::sqrt(kCount);  // of each mean below, but for a factor of 1.4 at most
  EXPECT_NEAR(sum / kCount, 0, 5 * sigma);
  EXPECT_NEAR(squares / kCount, 1, 7 * sigma);
  EXPECT_NEAR(neighbours / kCount, 0, 5 * sigma);
  EXPECT_NEAR(beyond_two / double{kCount}, std::erfc(2 / std::sqrt(2.0)), 5 * sigma);
}

TEST(Philox, KeysTellSeedPurposeAndNameApart) {
  const std::vector<PhiloxKey> keys = {random_key(1, RandomPurpose::kInit, "a"), random_key(2, RandomPurpose::kInit, "a"),
                                       random_key(1, RandomPurpose::kTest, "a"), random_key(1, RandomPurpose::kInit, "b"),
                                       random_key(1, RandomPurpose::kInit, 1), random_key(1, RandomPurpose::kInit, 2)};
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << " " << j;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// An index outside ends the program, also where the memory there belongs to the container.
TEST(At, SanitizedBuildsCheckTheIndex) {
  std::vector<int> values{1, 2};
  values.reserve(8);
  EXPECT_DEATH(at(values, 2), "Assertion");
  EXPECT_DEATH(at(values, -1), "Assertion");
}
#endif

}  // namespace
}  // namespace trident
