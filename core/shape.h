// Up to four extents, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/at.h"
#include "core/check.h"

namespace trident {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  constexpr Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) {
    TRIDENT_CHECK(extents.size() <= kMaxRank, "shapes have at most {} extents", kMaxRank);
    for (const std::int64_t e : extents) {
      TRIDENT_CHECK(e >= 0, "negative extent {}", e);
      at(extents_, rank_++) = e;
    }
  }

  int rank() const { return rank_; }
  // Extent of dimension `dim`; negative counts from the end.
  std::int64_t operator[](int dim) const {
    const int d = dim < 0 ? dim + rank_ : dim;
    TRIDENT_CHECK(d >= 0 && d < rank_, "dimension {} of a shape of rank {}", dim, rank_);
    return at(extents_, d);
  }
  std::int64_t num_elements() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank_; ++d) n *= at(extents_, d);
    return n;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};  // unused extents stay 0, so == compares correctly
  int rank_ = 0;
};

std::string to_string(const Shape& shape);  // "[2, 3]"

}  // namespace trident
