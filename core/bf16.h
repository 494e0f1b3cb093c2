// bfloat16 storage type: the upper half of an IEEE binary32. Arithmetic happens in float.
#pragma once

#include <bit>
#include <cstdint>

namespace trident {

struct bf16 {
  std::uint16_t bits;
};

inline float to_float(bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
inline float to_float(float x) { return x; }

// Round to nearest, ties to even; a NaN stays a (quiet) NaN, a value beyond the range becomes infinity.
inline bf16 to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

template <class T> T from_float(float x);
template <> inline float from_float<float>(float x) { return x; }
template <> inline bf16 from_float<bf16>(float x) { return to_bf16(x); }

}  // namespace trident
