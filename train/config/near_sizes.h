// These functions find sizes near one that does not divide as it must; remedies name them.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace trident {

// Returns the largest divisor of n that is at most `most`; both are positive. Only half of each pair of divisors is tried.
constexpr std::int64_t largest_divisor(std::int64_t n, std::int64_t most) {
  std::int64_t best = 1;
  for (std::int64_t i = 1; i <= n / i; ++i)
    for (const std::int64_t divisor : {i, n / i})
      if (n % i == 0 && divisor <= most) best = std::max(best, divisor);
  return best;
}

// Returns the multiples of `of` around n: "6 or 9" for 3 around 8, "3" for 3 around 2.
inline std::string multiples_around(std::int64_t n, std::int64_t of) {
  const std::int64_t below = n / of * of;
  return below > 0 ? fmt::format("{} or {}", below, below + of) : fmt::format("{}", of);
}

// Returns the batch.global, and the smaller batch.micro if there is one, that divide over data-parallel ranks: "6 or 9, or
// batch.micro = 2".
inline std::string batch_that_divides(std::int64_t global, std::int64_t micro, std::int64_t data) {
  const std::string smaller =
      global % data == 0 ? fmt::format(", or batch.micro = {}", largest_divisor(global / data, micro)) : "";
  return multiples_around(global, micro * data) + smaller;
}

}  // namespace trident
