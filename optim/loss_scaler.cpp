#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace trident {

LossScaler LossScaler::fixed(double scale) {
  int exponent = 0;
  if (!(scale > 0.0 && std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5))
    throw ConfigError(fmt::format("precision.loss_scale = {}: must be a power of two, so that scaling is exact", scale));
  return {false, scale};
}

void LossScaler::update(Overflow overflow) {
  if (!moves_) return;
  if (overflow == Overflow::kYes) {
    state_.clean_steps = 0;
    // Stays at 0 once spent: from then on every overflow shrinks the scale, until growth refills it.
    state_.overflows_left = std::max(state_.overflows_left - 1, 0);
    if (state_.overflows_left == 0) state_.scale = std::max(state_.scale / 2, kMinScale);
    return;
  }
  if (++state_.clean_steps < kGrowthInterval) return;
  state_.clean_steps = 0;
  state_.overflows_left = kHysteresis;
  state_.scale = std::min(state_.scale * 2, kMaxScale);
}

}  // namespace trident
