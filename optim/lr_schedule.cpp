#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace trident {

namespace {

double half_cosine(double r) { return 0.5 * (std::cos(std::numbers::pi * r) + 1.0); }

double tail_coefficient(LrDecay decay, double r) {
  switch (decay) {
    case LrDecay::kLinear: return 1.0 - r;
    case LrDecay::kCosine: return half_cosine(r);
    case LrDecay::kExponential: return 2.0 * std::exp2(-r) - 1.0;
    case LrDecay::kMinusSqrt: return 1.0 - std::sqrt(r);
  }
  return 0.0;
}

}  // namespace

double LrSchedule::at(std::int64_t n) const {
  TRIDENT_CHECK(n >= 1, "updates are counted from 1, not {}", n);
  const auto step = static_cast<double>(n);
  if (n <= warmup_steps) return lr * step / static_cast<double>(warmup_steps);
  if (type == LrScheduleType::kConstant) return lr;
  if (n > decay_steps) return min_lr;
  // From here warmup_steps < n <= decay_steps: the denominators below are positive.
  const double r = (step - static_cast<double>(warmup_steps)) / static_cast<double>(decay_steps - warmup_steps);
  switch (type) {
    case LrScheduleType::kConstant: return lr;
    case LrScheduleType::kLinear: return min_lr + (1.0 - r) * (lr - min_lr);
    case LrScheduleType::kCosine: return min_lr + half_cosine(r) * (lr - min_lr);
    case LrScheduleType::kInverseSqrt:
      return std::max(min_lr, lr * std::sqrt(static_cast<double>(std::max<std::int64_t>(warmup_steps, 1))) / std::sqrt(step));
    case LrScheduleType::kWsd: {
      const std::int64_t stable = decay_steps - wsd_decay_steps;
      if (n <= stable) return lr;
      return min_lr +
             tail_coefficient(wsd_decay, static_cast<double>(n - stable) / static_cast<double>(wsd_decay_steps)) * (lr - min_lr);
    }
  }
  return lr;
}

}  // namespace trident
