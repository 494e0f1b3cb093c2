// Which activations are recomputed in backward instead of being kept from forward.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trident {

// kSelective: the attention core (Korthikanti et al. 2022, section 5); kFull: whole blocks, from their inputs.
enum class RecomputePolicy : std::uint8_t { kNone, kSelective, kFull };

std::optional<RecomputePolicy> parse_recompute_policy(std::string_view text);  // "none", "selective", "full"
std::string_view to_string(RecomputePolicy policy);

}  // namespace trident
