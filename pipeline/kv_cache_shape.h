// How much text ranks continue at once: what decides the size of their caches of keys and values.
#pragma once

#include <cstdint>
#include <vector>

namespace trident {

struct KvCacheShape {
  std::int64_t capacity = 0;             // positions of a sequence
  std::int64_t slots = 1;                // sequences at once
  std::vector<std::int64_t> piece_rows;  // ascending: of which sizes a prompt's pieces are
};

}  // namespace trident
