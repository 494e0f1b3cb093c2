#include "optim/update_rule.h"

#include <cmath>

namespace trident {

std::optional<UpdateRule> parse_update_rule(std::string_view text) {
  for (const UpdateRule rule : kUpdateRules)
    if (to_string(rule) == text) return rule;
  return std::nullopt;
}

std::span<const UpdateState> update_states(UpdateRule rule) {
  static constexpr UpdateState kMoments[] = {{"exp_avg", "first moments"}, {"exp_avg_sq", "second moments"}};
  return std::span(kMoments).first(static_cast<std::size_t>(num_states(rule)));
}

std::vector<std::string> state_keys(UpdateRule rule) {
  std::vector<std::string> keys;
  for (const UpdateState& state : update_states(rule)) keys.emplace_back(state.key);
  return keys;
}

UpdateNumbers update_numbers(const OptimizerConfig& config, std::int64_t update, double lr, double gradient_scale) {
  const auto bias_correction = [&](double beta) {
    return static_cast<float>(1.0 / (1.0 - std::pow(beta, static_cast<double>(update))));
  };
  UpdateNumbers numbers{.lr = static_cast<float>(lr),
                        .beta1 = static_cast<float>(config.betas[0]),
                        .beta2 = static_cast<float>(config.betas[1]),
                        .eps = static_cast<float>(config.eps),
                        .weight_decay = static_cast<float>(config.weight_decay),
                        .grad_scale = static_cast<float>(gradient_scale),
                        .bias_correction1 = bias_correction(config.betas[0]),
                        .bias_correction2 = bias_correction(config.betas[1])};
  numbers.set_update(static_cast<std::uint64_t>(update));
  return numbers;
}

}  // namespace trident
