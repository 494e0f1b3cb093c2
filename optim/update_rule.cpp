#include "optim/update_rule.h"

#include <cstdint>

#include "core/check.h"
#include "optim/adamw.h"
#include "optim/lion.h"

namespace trident {

std::unique_ptr<const UpdateRule> make_update_rule(const UpdateRuleConfig& config) {
  switch (config.kind) {
    case UpdateRuleKind::kAdamW: return make_adamw(config);
    case UpdateRuleKind::kLion: return make_lion(config);
  }
  throw InternalError(fmt::format("update rule {}", static_cast<int>(config.kind)));
}

UpdateParams update_params(const UpdateRuleConfig& config, const UpdateStep& step) {
  UpdateParams params;
  params.lr = static_cast<float>(step.lr);
  params.beta1 = static_cast<float>(config.betas[0]);
  params.beta2 = static_cast<float>(config.betas[1]);
  params.eps = static_cast<float>(config.eps);
  params.weight_decay = step.decays ? static_cast<float>(config.weight_decay) : 0.0f;
  params.grad_scale = static_cast<float>(step.gradient_scale);
  params.rounding = step.rounding;
  if (params.rounding) params.rounding->update = static_cast<std::uint64_t>(step.update);
  return params;
}

std::vector<std::string> state_keys(const UpdateRule& rule) {
  std::vector<std::string> keys;
  for (const UpdateState& state : rule.states()) keys.push_back(state.key);
  return keys;
}

}  // namespace trident
