// Random numbers that are pure functions of key and counter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/philox.h"

namespace trident {
namespace {

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

}  // namespace
}  // namespace trident
