#include "pipeline/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace trident {

bool Schedule::forward_only() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const std::vector<Action>& actions) {
    return std::all_of(actions.begin(), actions.end(), [](const Action& a) { return a.kind == ActionKind::kForward; });
  });
}

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.virtual_stage, "FBIW"[static_cast<std::size_t>(action.kind)], action.micro_batch);
}

}  // namespace trident
