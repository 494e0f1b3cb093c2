#include "planner/search/layout_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/counted.h"
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

void ChoiceTimes::add(const SearchLayout& layout, double seconds) {
  const bool crosses = layout.tensor > gpus_per_node_, once = layout.reduces_once;
  const std::string schedule(to_string(layout.schedule)), zero(to_string(layout.zero));
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const auto add = [&](Choice choice, std::string text) {
    const auto [found, is_new] = times_.try_emplace(choice, ChoiceTime{std::move(text), seconds});
    found->second.seconds = std::min(found->second.seconds, seconds);
  };
  add({0, layout.tensor}, fmt::format("tensor {}{}", layout.tensor, crosses ? " (across nodes)" : ""));
  add({1, layout.pipeline}, fmt::format("pipeline {}", layout.pipeline));
  add({2, number(layout.schedule), layout.virtual_stages},
      layout.virtual_stages > 1 ? fmt::format("{} of {}", schedule, counted(layout.virtual_stages, "chunk")) : schedule);
  add({3, layout.micro}, fmt::format("micro-batches of {}", layout.micro));
  add({4, number(layout.zero), once ? 1 : 0}, zero + (once ? " reducing once" : ""));
  add({5, number(layout.recompute)}, fmt::format("recompute {}", to_string(layout.recompute)));
  add({6, layout.sequence_parallel ? 1 : 0}, layout.sequence_parallel ? "with sequence parallel" : "without sequence parallel");
}

std::vector<ChoiceTime> ChoiceTimes::times() const {
  std::vector<ChoiceTime> all;
  for (const auto& [choice, time] : times_) all.push_back(time);
  return all;
}

}  // namespace trident
