#include "core/f16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/dtype.h"
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

}  // namespace
}  // namespace trident
