// Which activations are recomputed in backward instead of being kept from forward.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/named_enum.h"

namespace trident {

// kSelective: the attention core (Korthikanti et al. 2022, section 5); kFull: whole blocks, from their inputs.
enum class RecomputePolicy : std::uint8_t { kNone, kSelective, kFull };
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<RecomputePolicy>{"none", "selective", "full"};

}  // namespace trident
