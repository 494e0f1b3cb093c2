// The axes that ranks are arranged along, and their order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trident {

enum class Axis : std::uint8_t { kTensor, kContext, kData, kPipeline };
inline constexpr int kNumAxes = 4;
std::string_view to_string(Axis axis);  // "tp", "cp", "dp", "pp"

// The axes from fastest to slowest changing rank, each once.
using AxisOrder = std::array<Axis, kNumAxes>;
inline constexpr AxisOrder kMegatronOrder = {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline};
std::optional<AxisOrder> parse_axis_order(std::string_view text);  // "tp-cp-dp-pp"; nothing for what is no order of all four
std::string to_string(const AxisOrder& order);

}  // namespace trident
