#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/check.h"

namespace trident {

namespace {

void require_power_of_two(double value, std::string_view name) {
  int exponent = 0;
  if (!(value > 0.0) || !std::isfinite(value) || std::frexp(value, &exponent) != 0.5)
    throw ConfigError(fmt::format("precision.loss_scale: {} = {}: must be a power of two, so that scaling is exact", name, value));
}

}  // namespace

LossScaler::LossScaler(Kind kind, const LossScalerOptions& options)
    : kind_(kind), options_(options), state_{options.initial_scale, 0, options.hysteresis} {}

LossScaler LossScaler::fixed(double scale) {
  require_power_of_two(scale, "scale");
  LossScalerOptions options;
  options.initial_scale = scale;
  return {Kind::kFixed, options};
}

LossScaler LossScaler::dynamic(const LossScalerOptions& options) {
  require_power_of_two(options.initial_scale, "initial scale");
  require_power_of_two(options.min_scale, "minimum scale");
  require_power_of_two(options.max_scale, "maximum scale");
  require_power_of_two(options.growth_factor, "growth factor");
  require_power_of_two(options.backoff_factor, "backoff factor");
  if (options.min_scale > options.initial_scale || options.initial_scale > options.max_scale)
    throw ConfigError(fmt::format("precision.loss_scale: initial scale = {}: must be between the minimum {} and the maximum {}",
                                  options.initial_scale, options.min_scale, options.max_scale));
  if (options.growth_factor <= 1.0 || options.backoff_factor >= 1.0)
    throw ConfigError(fmt::format("precision.loss_scale: growth factor = {}, backoff factor = {}: must be above and below 1",
                                  options.growth_factor, options.backoff_factor));
  if (options.growth_interval < 1 || options.hysteresis < 1)
    throw ConfigError(fmt::format("precision.loss_scale: growth interval = {}, hysteresis = {}: must be at least 1",
                                  options.growth_interval, options.hysteresis));
  return {Kind::kDynamic, options};
}

void LossScaler::update(Overflow overflow) {
  if (kind_ == Kind::kFixed) return;
  if (overflow == Overflow::kYes) {
    state_.clean_steps = 0;
    // Stays at 0 once spent: from then on every overflow shrinks the scale, until growth refills it.
    state_.overflows_left = std::max(state_.overflows_left - 1, 0);
    if (state_.overflows_left == 0) state_.scale = std::max(state_.scale * options_.backoff_factor, options_.min_scale);
    return;
  }
  if (++state_.clean_steps < options_.growth_interval) return;
  state_.clean_steps = 0;
  state_.overflows_left = options_.hysteresis;
  state_.scale = std::min(state_.scale * options_.growth_factor, options_.max_scale);
}

}  // namespace trident
