#include "planner/search/layout_search.h"

#include <algorithm>
#include <utility>

#include "core/for_each_index.h"

namespace trident {

RankedLayouts fastest_layouts(std::vector<TimedLayout> candidates, std::size_t keep, double beyond, int threads,
                              const std::function<double(const SearchLayout&)>& seconds) {
  std::ranges::stable_sort(candidates, {}, &TimedLayout::seconds);
  // Rounds of a fixed size: what is looked at does not depend on how fast threads are.
  constexpr std::size_t kRound = 64;
  RankedLayouts ranked;
  std::vector<std::pair<double, std::size_t>> times;  // the best so far, ascending
  for (std::size_t begin = 0; begin < candidates.size(); begin += kRound) {
    const std::size_t count = std::min(kRound, candidates.size() - begin);
    if (times.size() >= keep && candidates[begin].seconds > times[keep - 1].first * (1 + beyond)) break;
    std::vector<double> of_round(count);
    for_each_index(count, threads, [&](std::size_t i) { of_round[i] = seconds(candidates[begin + i].layout); });
    for (std::size_t i = 0; i < count; ++i) times.emplace_back(of_round[i], begin + i);
    ranked.timed += count;
    std::sort(times.begin(), times.end());
    if (times.size() > keep) times.resize(keep);
  }
  for (const auto& [time, index] : times) ranked.best.push_back({candidates[index].layout, time});
  return ranked;
}

}  // namespace trident
