// The scale that keeps fp16 gradients representable: the loss is multiplied by it, gradients are divided by it before the update.
#pragma once

#include <cstdint>

namespace trident {

enum class Overflow : std::uint8_t { kNo, kYes };

// Dynamic loss scaling with hysteresis (Megatron-LM, grad_scaler.py; Micikevicius et al. 2018, arXiv 1710.03740, section 3.2).
// The scale and its factors are powers of two, so that scaling never rounds.
struct LossScalerOptions {
  double initial_scale = 4294967296.0;  // 2^32
  double min_scale = 1.0;
  double max_scale = 0x1p120;  // stays a finite float, whatever happens
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 1000;  // clean steps in a row before the scale grows
  int hysteresis = 2;                   // overflows before the scale shrinks; refilled only when the scale grows
};

// A value: every rank holds one and feeds it the same (globally agreed) overflow flags.
class LossScaler {
 public:
  // A checkpoint stores these.
  struct State {
    double scale = 1.0;
    std::int64_t clean_steps = 0;  // in a row
    int overflows_left = 0;        // before the scale shrinks
    bool operator==(const State&) const = default;
  };

  // A constant scale (1: none); update() changes nothing. Throws ConfigError unless `scale` is a power of two.
  static LossScaler fixed(double scale);
  // InternalError for options that cannot work: no key sets them.
  static LossScaler dynamic(const LossScalerOptions& options = {});

  double scale() const { return state_.scale; }
  const LossScalerOptions& options() const { return options_; }
  // Whether overflows can make the scale smaller than it is.
  bool can_shrink() const { return kind_ == Kind::kDynamic && state_.scale > options_.min_scale; }
  // After every step, skipped or not: `overflow` = some gradient on some rank was not finite. Such a step must not be applied.
  void update(Overflow overflow);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  enum class Kind : std::uint8_t { kFixed, kDynamic };
  LossScaler(Kind kind, const LossScalerOptions& options);

  Kind kind_;
  LossScalerOptions options_;
  State state_;
};

}  // namespace trident
