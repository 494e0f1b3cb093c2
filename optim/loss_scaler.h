// The scale that keeps fp16 gradients representable: the loss is multiplied by it, gradients are divided by it before the update.
#pragma once

#include <cstdint>

namespace trident {

enum class Overflow : std::uint8_t { kNo, kYes };

// Dynamic loss scaling with hysteresis (Megatron-LM, grad_scaler.py; Micikevicius et al. 2018, arXiv 1710.03740, section 3.2).
// The scale is a power of two and moves by factors of two, so that scaling never rounds. A value: every rank holds one and feeds it
// the same (globally agreed) overflow flags.
class LossScaler {
 public:
  static constexpr double kInitialScale = 0x1p32, kMinScale = 1, kMaxScale = 0x1p120;  // the last stays a finite float
  static constexpr std::int64_t kGrowthInterval = 1000;  // clean steps in a row before the scale doubles
  static constexpr int kHysteresis = 2;                  // overflows before the scale halves; refilled only when it doubles

  // A checkpoint stores these.
  struct State {
    double scale = 1.0;
    std::int64_t clean_steps = 0;  // in a row
    int overflows_left = 0;        // before the scale shrinks
    bool operator==(const State&) const = default;
  };

  // A constant scale (1: none); update() changes nothing. Throws ConfigError unless `scale` is a power of two.
  static LossScaler fixed(double scale);
  static LossScaler dynamic() { return {true, kInitialScale}; }

  double scale() const { return state_.scale; }
  // Whether overflows can make the scale smaller than it is.
  bool can_shrink() const { return moves_ && state_.scale > kMinScale; }
  // After every step, skipped or not: `overflow` = some gradient on some rank was not finite. Such a step must not be applied.
  void update(Overflow overflow);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScaler(bool moves, double scale) : moves_(moves), state_{scale, 0, kHysteresis} {}

  bool moves_;
  State state_;
};

}  // namespace trident
