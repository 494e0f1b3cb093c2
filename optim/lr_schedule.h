// The learning rate as a pure function of the update's number.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/named_enum.h"

namespace trident {

enum class LrScheduleType : std::uint8_t { kConstant, kLinear, kCosine, kInverseSqrt, kWsd };
template <>
inline constexpr std::array<std::string_view, 5> kNamesOf<LrScheduleType>{"constant", "linear", "cosine", "inverse_sqrt", "wsd"};

// How warmup-stable-decay falls in its last wsd_decay_steps updates.
enum class LrDecay : std::uint8_t { kLinear, kCosine, kExponential, kMinusSqrt };
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<LrDecay>{"linear", "cosine", "exponential", "minus_sqrt"};

// Letters: n number of the update, from 1; w warmup_steps; d decay_steps; r the fraction of the decay that is done.
//
//   n <= w        lr * n / w                          (all types; w = 0: no warm-up)
//   constant      lr
//   linear        min_lr + (1 - r) (lr - min_lr),                 r = (n - w)/(d - w)
//   cosine        min_lr + (cos(pi r) + 1)/2 (lr - min_lr),       r = (n - w)/(d - w)
//   inverse_sqrt  max(min_lr, lr sqrt(max(w, 1)) / sqrt(n))
//   wsd           lr until n = d - t, t = wsd_decay_steps, then min_lr + c(r) (lr - min_lr), r = (n - (d - t))/t, with c:
//                 linear 1 - r, cosine (cos(pi r) + 1)/2, exponential 2 * 0.5^r - 1, minus_sqrt 1 - sqrt(r)
//   n > d         min_lr (all but constant)
//
// The formulas are Megatron-LM's (optimizer_param_scheduler.py) with n counted from 1: update n = d runs at min_lr, update 1 never
// at 0.
struct LrSchedule {
  LrScheduleType type = LrScheduleType::kConstant;
  double lr = 0;
  double min_lr = 0;  // 0 <= min_lr <= lr
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;      // where the decay ends, usually the run's number of steps
  std::int64_t wsd_decay_steps = 0;  // wsd: length of the tail, <= decay_steps
  LrDecay wsd_decay = LrDecay::kExponential;

  // The learning rate of update n >= 1.
  double at(std::int64_t n) const;
};

}  // namespace trident
