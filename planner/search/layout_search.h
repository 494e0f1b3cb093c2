// Finds the best of many layouts without looking at most of them. Pure but for threads.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "planner/search/search_space.h"

namespace trident {

struct BoundedLayout {
  SearchLayout layout;
  double least = 0;  // seconds that a step takes at least
};

struct TimedLayout {
  SearchLayout layout;
  double seconds = 0;
};

struct RankedLayouts {
  std::vector<TimedLayout> best;  // ascending; equal times in the order of the candidates
  std::size_t timed = 0;          // candidates whose time was asked for
};

// The `keep` fastest candidates by `seconds`, which is called from `threads` threads. Candidates that at the
// least take longer than the `keep`-th by more than `beyond` (a part of it) are not asked about. The same result whatever the
// threads.
RankedLayouts fastest_layouts(std::vector<BoundedLayout> candidates, std::size_t keep, double beyond, int threads,
                              const std::function<double(const SearchLayout&)>& seconds);

}  // namespace trident
