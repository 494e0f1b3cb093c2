// checkpoint.content.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/named_enum.h"

namespace trident {

enum class CheckpointContent : std::uint8_t { kAll, kWeights };  // kWeights: the weights in the compute dtype, nothing else
template <>
inline constexpr std::array<std::string_view, 2> kNamesOf<CheckpointContent>{"all", "weights"};

}  // namespace trident
