// Integer helpers. Sizes are int64_t throughout; products of extents are formed in int64_t.
#pragma once

#include <cstdint>
#include <utility>

#include "core/check.h"

namespace trident {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// For integers that cross a C interface.
template <class To, class From> To checked_cast(From x) {
  TRIDENT_CHECK(std::in_range<To>(x), "{} does not fit the target integer type", x);
  return static_cast<To>(x);
}

}  // namespace trident
