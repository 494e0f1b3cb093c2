// The cost of a search's choices: for each value of each dimension the fastest layout among those that were timed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/search/search_space.h"

namespace trident {

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
