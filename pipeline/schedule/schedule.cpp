#include "pipeline/schedule/schedule.h"

#include <algorithm>

#include "core/check.h"

namespace trident {
namespace {

char letter(ActionKind kind) { return "FBIW"[static_cast<std::size_t>(kind)]; }

}  // namespace

bool Schedule::forward_only() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const std::vector<Action>& actions) {
    return std::all_of(actions.begin(), actions.end(), [](const Action& a) { return a.kind == ActionKind::kForward; });
  });
}

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.virtual_stage, letter(action.kind), action.micro_batch);
}

std::string to_text(const Schedule& schedule) {
  std::string text =
      fmt::format("p={} v={} m={}\n", schedule.num_ranks, schedule.num_chunks, schedule.num_micro_batches);
  for (const auto& actions : schedule.ranks) {
    std::string_view separator = "";
    for (const Action& action : actions) {
      text.append(separator).append(to_string(action));
      separator = " ";
    }
    text += '\n';
  }
  return text;
}

}  // namespace trident
