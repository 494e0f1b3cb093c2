#include "planner/search/layout_search.h"

#include <algorithm>

#include "core/for_each_index.h"

namespace trident {

std::vector<TimedLayout> fastest_layouts(std::vector<TimedLayout> candidates, std::size_t keep, double beyond, int threads,
                                         const std::function<double(const SearchLayout&)>& seconds) {
  std::ranges::stable_sort(candidates, {}, &TimedLayout::rank);
  // Rounds of a fixed size: what is looked at does not depend on how fast threads are.
  constexpr std::size_t kRound = 64;
  constexpr double kNear = 0.1;  // a variation that is slower by more than this part helps nobody to choose
  std::vector<TimedLayout> timed, firsts;  // of each set of variations the fastest
  const auto first_of = [&](const TimedLayout& it) {
    return std::ranges::find_if(
        firsts, [&](const TimedLayout& first) { return first.tight == it.tight && are_variations(first.layout, it.layout); });
  };
  for (auto next = candidates.begin(); next != candidates.end();) {
    if (firsts.size() >= keep) {
      TimedLayout last = firsts[keep - 1];
      last.seconds *= 1 + beyond;
      if (next->rank() > last.rank()) break;
    }
    std::vector<TimedLayout> round;
    for (; next != candidates.end() && round.size() < kRound; ++next)
      if (const auto first = first_of(*next); first == firsts.end() || next->seconds <= (1 + kNear) * first->seconds)
        round.push_back(*next);
    for_each_index(round.size(), threads, [&](std::size_t i) { round[i].seconds = seconds(round[i].layout); });
    timed.insert(timed.end(), round.begin(), round.end());
    std::ranges::stable_sort(timed, {}, &TimedLayout::rank);
    firsts.clear();
    for (const TimedLayout& it : timed)
      if (first_of(it) == firsts.end()) firsts.push_back(it);
  }
  return timed;
}

}  // namespace trident
