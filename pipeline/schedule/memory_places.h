// Where in one region of memory things lie that live for a stretch of a program each. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trident {

// Something of `bytes` that is needed at times begin .. end, both included.
struct Lifetime {
  std::int64_t bytes = 0;
  std::int64_t begin = 0, end = 0;
};

struct Places {
  std::vector<std::int64_t> offsets;  // bytes, in the order of the lifetimes
  std::int64_t bytes = 0;             // of the region
};

// The most that is alive at one time: no places take less.
std::int64_t most_alive(std::span<const Lifetime> lifetimes);

// Places at which no two that are alive at one time overlap. Exactly most_alive() where never more than two are alive, which is
// what gathers per use and transient gradients come to; otherwise the better of two greedy orders, by size and by time. Offsets
// are sums and differences of the sizes, so they are aligned as these are. The same input has the same places, everywhere.
Places place(std::span<const Lifetime> lifetimes);

}  // namespace trident
