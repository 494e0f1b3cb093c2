#include "planner/search/search_choices.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/counted.h"

namespace trident {

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
