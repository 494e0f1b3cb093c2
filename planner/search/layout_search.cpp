#include "planner/search/layout_search.h"

#include <algorithm>

#include "core/for_each_index.h"

namespace trident {

RankedLayouts fastest_layouts(std::vector<TimedLayout> candidates, std::size_t keep, double beyond, int threads,
                              const std::function<double(const SearchLayout&)>& seconds) {
  std::ranges::stable_sort(candidates, {}, &TimedLayout::rank);
  // Rounds of a fixed size: what is looked at does not depend on how fast threads are.
  constexpr std::size_t kRound = 64;
  RankedLayouts ranked;
  std::vector<TimedLayout>& best = ranked.best;
  for (std::size_t begin = 0; begin < candidates.size(); begin += kRound) {
    const std::size_t count = std::min(kRound, candidates.size() - begin);
    if (best.size() >= keep) {
      TimedLayout last = best[keep - 1];
      last.seconds *= 1 + beyond;
      if (candidates[begin].rank() > last.rank()) break;
    }
    for_each_index(count, threads, [&](std::size_t i) { candidates[begin + i].seconds = seconds(candidates[begin + i].layout); });
    for (std::size_t i = 0; i < count; ++i) best.push_back(candidates[begin + i]);
    ranked.timed += count;
    std::ranges::stable_sort(best, {}, &TimedLayout::rank);
    if (best.size() > keep) best.resize(keep);
  }
  return ranked;
}

}  // namespace trident
