// Finds the best of many layouts without looking at most of them. Pure but for threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/search/search_space.h"

namespace trident {

struct TimedLayout {
  SearchLayout layout;
  double seconds = 0;
  bool tight = false;  // fits with less free than its memory may be off
  std::int64_t needed_bytes = 0;  // of the device's
  auto rank() const { return std::pair(tight, seconds); }
};

// The candidates whose time was asked for, by rank; equal times in the order of the candidates. Among them are the fastest of the
// `keep` fastest sets of variations by the function `seconds`, which is called from `threads` threads; tight ones stand behind all
// others, in sets of their own. `candidates` have the seconds that a step takes at least: where these are longer than the `keep`-th
// set's by more than `beyond` (a part of it), or much longer than a variation's, nothing is asked about them. The same result
// whatever the threads.
std::vector<TimedLayout> fastest_layouts(std::vector<TimedLayout> candidates, std::size_t keep, double beyond, int threads,
                                         const std::function<double(const SearchLayout&)>& seconds);

// The cost of a search's choices: for each value of each dimension the fastest layout among those that were timed.
struct ChoiceTime {
  std::string choice;  // "tensor 8"
  double seconds = 0;
};

class ChoiceTimes {
 public:
  explicit ChoiceTimes(int gpus_per_node) : gpus_per_node_(gpus_per_node) {}
  void add(const SearchLayout& layout, double seconds);
  std::vector<ChoiceTime> times() const;  // by dimension, then by value: 2 before 16

 private:
  using Choice = std::array<std::int64_t, 3>;  // the dimension, and what is chosen in it

  int gpus_per_node_;
  std::map<Choice, ChoiceTime> times_;
};

}  // namespace trident
