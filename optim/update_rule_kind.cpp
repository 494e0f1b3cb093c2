#include "optim/update_rule_kind.h"

namespace trident {

std::optional<UpdateRuleKind> parse_update_rule(std::string_view text) {
  if (text == "adamw") return UpdateRuleKind::kAdamW;
  if (text == "lion") return UpdateRuleKind::kLion;
  return std::nullopt;
}

std::string_view to_string(UpdateRuleKind kind) {
  switch (kind) {
    case UpdateRuleKind::kAdamW: return "adamw";
    case UpdateRuleKind::kLion: return "lion";
  }
  return "?";
}

}  // namespace trident
