#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "optim/loss_scaler.h"

namespace trident {
namespace {

LrSchedule schedule(LrScheduleType type) {
  return {.type = type,
          .lr = 1.0,
          .min_lr = 0.1,
          .warmup_steps = 10,
          .decay_steps = 110,
          .wsd_decay_steps = 0,
          .wsd_decay = LrDecay::kLinear};
}

constexpr LrScheduleType kAllTypes[] = {LrScheduleType::kConstant, LrScheduleType::kLinear, LrScheduleType::kCosine,
                                        LrScheduleType::kInverseSqrt, LrScheduleType::kWsd};

TEST(LrSchedule, WarmUpIsLinearFromTheFirstUpdate) {
  for (const LrScheduleType type : kAllTypes) {
    const LrSchedule s = schedule(type);
    EXPECT_DOUBLE_EQ(s.at(1), 0.1) << "the first update is not at 0";
    EXPECT_DOUBLE_EQ(s.at(5), 0.5);
    EXPECT_DOUBLE_EQ(s.at(10), 1.0) << "the last warm-up update runs at the full rate";
  }
}

TEST(LrSchedule, WithoutWarmUpStartsAtTheFormula) {
  LrSchedule s = schedule(LrScheduleType::kLinear);
  s.warmup_steps = 0;
  s.decay_steps = 100;
  EXPECT_DOUBLE_EQ(s.at(1), 0.1 + 0.9 * 0.99);
  s.type = LrScheduleType::kInverseSqrt;
  EXPECT_DOUBLE_EQ(s.at(1), 1.0);
  EXPECT_DOUBLE_EQ(s.at(4), 0.5);
}

TEST(LrSchedule, AConstantStays) {
  const LrSchedule s = schedule(LrScheduleType::kConstant);
  EXPECT_EQ(s.at(11), 1.0);
  EXPECT_EQ(s.at(1000000), 1.0) << "a constant rate does not end";
}

TEST(LrSchedule, ALineFallsEvenly) {
  const LrSchedule s = schedule(LrScheduleType::kLinear);
  EXPECT_DOUBLE_EQ(s.at(35), 0.1 + 0.75 * 0.9);
  EXPECT_DOUBLE_EQ(s.at(60), 0.55);
  EXPECT_DOUBLE_EQ(s.at(110), 0.1);
}

TEST(LrSchedule, ACosineFallsToItsMinimum) {
  const LrSchedule s = schedule(LrScheduleType::kCosine);
  EXPECT_NEAR(s.at(35), 0.1 + 0.9 * (1.0 + std::sqrt(0.5)) / 2.0, 1e-15);
  EXPECT_DOUBLE_EQ(s.at(60), 0.55);
  EXPECT_DOUBLE_EQ(s.at(110), 0.1);
}

TEST(LrSchedule, AnInverseRootFallsOn) {
  LrSchedule s = schedule(LrScheduleType::kInverseSqrt);
  EXPECT_DOUBLE_EQ(s.at(40), 0.5);
  EXPECT_DOUBLE_EQ(s.at(90), 1.0 / 3.0);
  s.min_lr = 0.4;
  EXPECT_DOUBLE_EQ(s.at(90), 0.4) << "the floor";
}

TEST(LrSchedule, WarmupStableDecayHasThreeParts) {
  LrSchedule s = schedule(LrScheduleType::kWsd);
  s.wsd_decay_steps = 20;
  EXPECT_EQ(s.at(50), 1.0);
  EXPECT_EQ(s.at(90), 1.0) << "the last stable update";
  struct {
    LrDecay decay;
    double coefficient_at_half;
  } const cases[] = {{LrDecay::kLinear, 0.5},
                     {LrDecay::kCosine, 0.5},
                     {LrDecay::kExponential, std::sqrt(2.0) - 1.0},
                     {LrDecay::kMinusSqrt, 1.0 - std::sqrt(0.5)}};
  for (const auto& [decay, coefficient] : cases) {
    s.wsd_decay = decay;
    EXPECT_NEAR(s.at(100), 0.1 + 0.9 * coefficient, 1e-15) << to_string(decay);
    EXPECT_NEAR(s.at(110), 0.1, 1e-15) << to_string(decay);
    EXPECT_LT(s.at(91), 1.0) << to_string(decay);
  }
}

TEST(LrSchedule, TheMinimumFollowsTheDecay) {
  for (const LrScheduleType type : kAllTypes) {
    if (type != LrScheduleType::kConstant) {
      EXPECT_EQ(schedule(type).at(111), 0.1) << to_string(type);
    }
  }
}

TEST(LrSchedule, RunsShorterThanTheirWarmUpOnlyWarmUp) {
  LrSchedule s = schedule(LrScheduleType::kCosine);
  s.decay_steps = 5;
  EXPECT_DOUBLE_EQ(s.at(5), 0.5);
  EXPECT_DOUBLE_EQ(s.at(10), 1.0);
  EXPECT_EQ(s.at(11), 0.1);
}

TEST(LrSchedule, NeverRisesAfterTheWarmUp) {
  for (const LrScheduleType type : kAllTypes) {
    LrSchedule s = schedule(type);
    s.wsd_decay_steps = 30;
    for (std::int64_t n = 11; n < 150; ++n) EXPECT_LE(s.at(n), s.at(n - 1)) << to_string(type) << " " << n;
  }
}

TEST(LrSchedule, UpdateZeroDoesNotExist) { EXPECT_THROW(schedule(LrScheduleType::kCosine).at(0), InternalError); }

TEST(LrSchedule, NamesRoundTrip) {
  for (const LrScheduleType type : kAllTypes) EXPECT_EQ(parse_name<LrScheduleType>(to_string(type)), type);
  EXPECT_EQ(parse_name<LrScheduleType>("cosin"), std::nullopt);
  for (const LrDecay decay : {LrDecay::kLinear, LrDecay::kCosine, LrDecay::kExponential, LrDecay::kMinusSqrt})
    EXPECT_EQ(parse_name<LrDecay>(to_string(decay)), decay);
  EXPECT_EQ(parse_name<LrDecay>(""), std::nullopt);
}

LossScaler at_16() {
  LossScaler scaler = LossScaler::dynamic();
  scaler.restore({16.0, 0, LossScaler::kHysteresis});
  return scaler;
}

constexpr std::int64_t kRow = LossScaler::kGrowthInterval;

void clean(LossScaler& scaler, std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; ++i) scaler.update(Overflow::kNo);
}

TEST(LossScaler, StartsAtTwoToThe32) { EXPECT_EQ(LossScaler::dynamic().state(), (LossScaler::State{4294967296.0, 0, 2})); }

TEST(LossScaler, FixedNeverMoves) {
  LossScaler scaler = LossScaler::fixed(1024.0);
  for (int i = 0; i < 10; ++i) scaler.update(Overflow::kYes);
  clean(scaler, 5000);
  EXPECT_EQ(scaler.scale(), 1024.0);
  EXPECT_FALSE(scaler.can_shrink());
}

TEST(LossScaler, GrowsAfterCleanStepsInARow) {
  LossScaler scaler = at_16();
  clean(scaler, kRow - 1);
  EXPECT_EQ(scaler.scale(), 16.0);
  clean(scaler, 1);
  EXPECT_EQ(scaler.scale(), 32.0);
  clean(scaler, kRow - 1);
  scaler.update(Overflow::kYes);  // tolerated, but the row begins again
  clean(scaler, kRow - 1);
  EXPECT_EQ(scaler.scale(), 32.0);
  clean(scaler, 1);
  EXPECT_EQ(scaler.scale(), 64.0);
}

TEST(LossScaler, ShrinksOnlyWhenTheAllowanceIsSpent) {
  LossScaler scaler = at_16();
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 16.0) << "the first overflow is tolerated";
  clean(scaler, 1);
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 8.0) << "a clean step does not refill the allowance";
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 4.0) << "once spent, every overflow shrinks";
}

TEST(LossScaler, GrowthRefillsTheAllowance) {
  LossScaler scaler = at_16();
  scaler.update(Overflow::kYes);
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 8.0);
  clean(scaler, kRow);
  EXPECT_EQ(scaler.scale(), 16.0);
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 16.0);
}

TEST(LossScaler, StaysWithinItsBounds) {
  LossScaler scaler = at_16();
  for (int i = 0; i < 20; ++i) scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 1.0);
  EXPECT_FALSE(scaler.can_shrink());
  clean(scaler, 130 * kRow);
  EXPECT_TRUE(scaler.can_shrink());
  EXPECT_EQ(scaler.scale(), 0x1p120);
}

TEST(LossScaler, ContinuesFromItsState) {
  LossScaler first = LossScaler::dynamic();
  clean(first, 2);
  first.update(Overflow::kYes);
  clean(first, kRow - 3);
  LossScaler second = LossScaler::dynamic();
  second.restore(first.state());
  for (const Overflow overflow : {Overflow::kYes, Overflow::kNo, Overflow::kNo, Overflow::kNo, Overflow::kYes}) {
    first.update(overflow);
    second.update(overflow);
    EXPECT_EQ(first.state(), second.state());
  }
}

TEST(LossScaler, AFixedScaleIsAPowerOfTwo) {
  for (const double scale : {1000.0, 0.0, -2.0}) EXPECT_THROW(LossScaler::fixed(scale), ConfigError);
}

}  // namespace
}  // namespace trident
