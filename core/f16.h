// IEEE binary16 storage type. Arithmetic happens in float.
#pragma once

#include <bit>
#include <cstdint>

#include "core/bf16.h"

namespace trident {

struct f16 {
  std::uint16_t bits;
};

// Exact, denormals included. A NaN keeps its sign and payload and becomes quiet, as x86's vcvtph2ps makes it. Without branches: loops
// over this and to_f16() become vector instructions.
inline float to_float(f16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16, magnitude = x.bits & 0x7fffu;
  // Below the smallest normal number: an integer number of 2^-24.
  const auto denormal = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  const std::uint32_t normal = (magnitude + (112u << 10)) << 13;  // 112: between the biases of the exponents
  const std::uint32_t special = 0x7f800000u | (magnitude & 0x3ffu) << 13 | (magnitude > 0x7c00u ? 0x00400000u : 0u);
  return std::bit_cast<float>(sign | (magnitude < 0x0400u ? denormal : magnitude < 0x7c00u ? normal : special));
}

// Round to nearest, ties to even, denormals included; from 65520 on infinity. A NaN keeps its sign and the upper part of its payload
// and becomes quiet.
inline f16 to_f16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  // Below 2^-14 results are multiples of 2^-24: so are sums with 0.5, whose rounding is the one that is wanted.
  const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t finite = magnitude < 0x38800000u ? tiny : magnitude < 0x477ff000u ? normal : 0x7c00u;
  const std::uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  return {static_cast<std::uint16_t>(sign | (magnitude > 0x7f800000u ? nan : finite))};
}

template <> inline f16 from_float<f16>(float x) { return to_f16(x); }

}  // namespace trident
