#include "optim/update_rule.h"

#include "core/check.h"
#include "optim/adamw.h"

namespace trident {

std::unique_ptr<const UpdateRule> make_update_rule(const UpdateRuleConfig& config) {
  switch (config.kind) {
    case UpdateRuleKind::kAdamW: return std::make_unique<AdamWRule>(config);
  }
  throw InternalError(fmt::format("update rule {}", static_cast<int>(config.kind)));
}

std::vector<std::string> state_keys(const UpdateRule& rule) {
  std::vector<std::string> keys;
  for (const UpdateState& state : rule.states()) keys.push_back(state.key);
  return keys;
}

}  // namespace trident
