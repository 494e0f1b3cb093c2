// Finds sizes near one that does not divide as it must, for remedies.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace trident {

// Returns the largest divisor of n that is at most `most`; both are positive.
constexpr std::int64_t largest_divisor(std::int64_t n, std::int64_t most) {
  while (n % most != 0) --most;
  return most;
}

// "6 or 9": the multiples of 3 around 8; "3" around 2.
inline std::string multiples_around(std::int64_t n, std::int64_t of) {
  const std::int64_t below = n / of * of;
  return below > 0 ? fmt::format("{} or {}", below, below + of) : fmt::format("{}", of);
}

}  // namespace trident
