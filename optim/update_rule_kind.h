// The update rules that there are, by the names that configurations give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trident {

enum class UpdateRuleKind : std::uint8_t { kAdamW, kLion };

std::optional<UpdateRuleKind> parse_update_rule(std::string_view text);  // "adamw", "lion"
std::string_view to_string(UpdateRuleKind kind);

}  // namespace trident
