// The axes that ranks are arranged along, and their order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/named_enum.h"

namespace trident {

enum class Axis : std::uint8_t { kTensor, kContext, kData, kPipeline };
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<Axis>{"tp", "cp", "dp", "pp"};
inline constexpr int kNumAxes = 4;

// The axes from fastest to slowest changing rank, each once.
using AxisOrder = std::array<Axis, kNumAxes>;
inline constexpr AxisOrder kMegatronOrder = {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline};
std::optional<AxisOrder> parse_axis_order(std::string_view text);  // "tp-cp-dp-pp"; nothing for what is no order of all four
std::string to_string(const AxisOrder& order);

}  // namespace trident
