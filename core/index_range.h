// Consecutive elements, bytes or documents.
#pragma once

#include <cstdint>

namespace trident {

// [begin, end).
struct IndexRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool meets(const IndexRange& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const IndexRange&) const = default;
};

}  // namespace trident
