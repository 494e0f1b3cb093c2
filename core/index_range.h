// Consecutive elements, bytes or documents.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trident {

// [begin, end).
struct IndexRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool meets(const IndexRange& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const IndexRange&) const = default;
};

// [begin, end) of a text, in bytes.
struct ByteRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

}  // namespace trident
