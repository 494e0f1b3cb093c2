#include "core/parallel_axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

#include "core/at.h"

namespace trident {

std::optional<AxisOrder> parse_axis_order(std::string_view text) {
  AxisOrder order{};
  std::array<bool, kNumAxes> seen{};
  for (std::size_t i = 0; i < kNumAxes; ++i) {
    const std::size_t dash = text.find('-');
    const bool last = i + 1 == kNumAxes;
    const auto axis = std::ranges::find(kMegatronOrder, text.substr(0, dash), [](Axis a) { return to_string(a); });
    if (axis == kMegatronOrder.end() || at(seen, *axis) || last != (dash == std::string_view::npos)) return std::nullopt;
    at(seen, *axis) = true;
    order[i] = *axis;
    if (!last) text.remove_prefix(dash + 1);
  }
  return order;
}

std::string to_string(const AxisOrder& order) {
  return fmt::format("{}-{}-{}-{}", to_string(order[0]), to_string(order[1]), to_string(order[2]), to_string(order[3]));
}

}  // namespace trident
