#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace trident {

namespace {

bool is_power_of_two(double value) {
  int exponent = 0;
  return value > 0.0 && std::isfinite(value) && std::frexp(value, &exponent) == 0.5;
}

}  // namespace

LossScaler::LossScaler(Kind kind, const LossScalerOptions& options)
    : kind_(kind), options_(options), state_{options.initial_scale, 0, options.hysteresis} {}

LossScaler LossScaler::fixed(double scale) {
  if (!is_power_of_two(scale)) throw ConfigError(fmt::format("precision.loss_scale = {}: must be a power of two, so that scaling is exact", scale));
  LossScalerOptions options;
  options.initial_scale = scale;
  return {Kind::kFixed, options};
}

LossScaler LossScaler::dynamic(const LossScalerOptions& options) {
  for (const double value : {options.initial_scale, options.min_scale, options.max_scale, options.growth_factor, options.backoff_factor})
    TRIDENT_CHECK(is_power_of_two(value), "loss scaling with {}, which is not a power of two", value);
  TRIDENT_CHECK(options.min_scale <= options.initial_scale && options.initial_scale <= options.max_scale,
                "a loss scale of {}, between {} and {}", options.initial_scale, options.min_scale, options.max_scale);
  TRIDENT_CHECK(options.growth_factor > 1.0 && options.backoff_factor < 1.0, "a loss scale that grows by {} and shrinks by {}",
                options.growth_factor, options.backoff_factor);
  TRIDENT_CHECK(options.growth_interval >= 1 && options.hysteresis >= 1, "a loss scale that grows after {} steps and shrinks after {} overflows",
                options.growth_interval, options.hysteresis);
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
