// Stochastic rounding to bf16 by its definition, one number at a time: the neighbours, and how far it is to each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/bf16.h"
#include "core/philox.h"
#include "device/op_numbers.h"

namespace trident::testing {

// The 16 random bits of element `element` of its tensor in update `update`.
inline std::uint32_t rounding_bits(const RoundedElements& e, std::uint64_t update, std::uint64_t element) {
  const std::uint64_t block = element / 8;
  const PhiloxCounter words = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                          static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32)},
                                         {e.key[0], e.key[1]});
  const std::uint32_t word = words[element % 8 / 2];
  return element % 2 == 0 ? word % 65536 : word / 65536;
}

// The element of the tensor that element `i` of a call is.
inline std::uint64_t tensor_element(const RoundedElements& e, std::int64_t i) {
  const std::int64_t at = e.first_column + i;
  return static_cast<std::uint64_t>(e.first_index + at / e.columns * e.stride + at % e.columns);
}

// Away from zero if the share of the way that x is past its neighbour towards zero, and bits / 65536, are 1 or more together.
inline bf16 rounded_at_random(float x, std::uint32_t bits) {
  constexpr double kLargest = 255 * 0x1p120;
  const double magnitude = std::abs(double{x});
  if (!(magnitude <= kLargest)) return to_bf16(x);
  const int exponent = magnitude == 0 ? -126 : std::max(std::ilogb(magnitude), -126);
  const double unit = std::ldexp(1.0, exponent - 7), steps = magnitude / unit, below = std::floor(steps);
  const double chosen = (steps - below) + bits / 65536.0 >= 1 ? below + 1 : below;
  return to_bf16(std::copysign(static_cast<float>(chosen * unit), x));
}

}  // namespace trident::testing
