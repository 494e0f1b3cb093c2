// Finds the best of many layouts without looking at most of them. Pure but for threads.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "planner/search/search_space.h"

namespace trident {

struct TimedLayout {
  SearchLayout layout;
  double seconds = 0;
  bool tight = false;  // fits with less free than its memory may be off
  auto rank() const { return std::pair(tight, seconds); }
};

struct RankedLayouts {
  std::vector<TimedLayout> best;  // by rank; equal times in the order of the candidates
  std::size_t timed = 0;          // candidates whose time was asked for
};

// The `keep` fastest candidates by the function `seconds`, which is called from `threads` threads; tight ones behind all others.
// `candidates` have the seconds that a step takes at least: where these are longer than the `keep`-th's by more than `beyond` (a
// part of it), nothing is asked about them. The same result whatever the threads.
RankedLayouts fastest_layouts(std::vector<TimedLayout> candidates, std::size_t keep, double beyond, int threads,
                              const std::function<double(const SearchLayout&)>& seconds);

}  // namespace trident
