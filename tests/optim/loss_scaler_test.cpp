#include "optim/loss_scaler.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace trident {
namespace {

LossScalerOptions small() {
  LossScalerOptions options;
  options.initial_scale = 16.0;
  options.growth_interval = 3;
  return options;
}

void clean(LossScaler& scaler, int steps) {
  for (int i = 0; i < steps; ++i) scaler.update(Overflow::kNo);
}

TEST(LossScaler, StartsAtTwoToThe32) { EXPECT_EQ(LossScaler::dynamic().scale(), 4294967296.0); }

TEST(LossScaler, FixedNeverMoves) {
  LossScaler scaler = LossScaler::fixed(1024.0);
  for (int i = 0; i < 10; ++i) scaler.update(Overflow::kYes);
  clean(scaler, 5000);
  EXPECT_EQ(scaler.scale(), 1024.0);
  EXPECT_FALSE(scaler.can_shrink());
}

TEST(LossScaler, GrowsAfterCleanStepsInARow) {
  LossScaler scaler = LossScaler::dynamic(small());
  clean(scaler, 2);
  EXPECT_EQ(scaler.scale(), 16.0);
  clean(scaler, 1);
  EXPECT_EQ(scaler.scale(), 32.0);
  clean(scaler, 2);
  scaler.update(Overflow::kYes);  // tolerated, but the row begins again
  clean(scaler, 2);
  EXPECT_EQ(scaler.scale(), 32.0);
  clean(scaler, 1);
  EXPECT_EQ(scaler.scale(), 64.0);
}

TEST(LossScaler, ShrinksOnlyWhenTheAllowanceIsSpent) {
  LossScaler scaler = LossScaler::dynamic(small());
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 16.0) << "the first overflow is tolerated";
  clean(scaler, 1);
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 8.0) << "a clean step does not refill the allowance";
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 4.0) << "once spent, every overflow shrinks";
}

TEST(LossScaler, GrowthRefillsTheAllowance) {
  LossScaler scaler = LossScaler::dynamic(small());
  scaler.update(Overflow::kYes);
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 8.0);
  clean(scaler, 3);
  EXPECT_EQ(scaler.scale(), 16.0);
  scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 16.0);
}

TEST(LossScaler, StaysWithinItsBounds) {
  LossScalerOptions options = small();
  options.min_scale = 4.0;
  options.max_scale = 64.0;
  LossScaler scaler = LossScaler::dynamic(options);
  for (int i = 0; i < 20; ++i) scaler.update(Overflow::kYes);
  EXPECT_EQ(scaler.scale(), 4.0);
  EXPECT_FALSE(scaler.can_shrink());
  clean(scaler, 100);
  EXPECT_TRUE(scaler.can_shrink());
  EXPECT_EQ(scaler.scale(), 64.0);
}

TEST(LossScaler, ContinuesFromItsState) {
  LossScaler first = LossScaler::dynamic(small());
  clean(first, 2);
  first.update(Overflow::kYes);
  clean(first, 1);
  LossScaler second = LossScaler::dynamic(small());
  second.restore(first.state());
  for (const Overflow overflow : {Overflow::kYes, Overflow::kNo, Overflow::kNo, Overflow::kNo, Overflow::kYes}) {
    first.update(overflow);
    second.update(overflow);
    EXPECT_EQ(first.state(), second.state());
  }
}

TEST(LossScaler, RefusesWhatCannotWork) {
  EXPECT_THROW(LossScaler::fixed(1000.0), ConfigError);
  EXPECT_THROW(LossScaler::fixed(0.0), ConfigError);
  EXPECT_THROW(LossScaler::fixed(-2.0), ConfigError);
  const auto refused = [](auto change) {
    LossScalerOptions options = small();
    change(options);
    EXPECT_THROW(LossScaler::dynamic(options), InternalError);
  };
  EXPECT_NO_THROW(LossScaler::dynamic(small()));
  refused([](LossScalerOptions& o) { o.min_scale = 32.0; });
  refused([](LossScalerOptions& o) { o.max_scale = 8.0; });
  refused([](LossScalerOptions& o) { o.growth_factor = 1.0; });
  refused([](LossScalerOptions& o) { o.backoff_factor = 1.0; });
  refused([](LossScalerOptions& o) { o.backoff_factor = 0.3; });
  refused([](LossScalerOptions& o) { o.growth_interval = 0; });
  refused([](LossScalerOptions& o) { o.hysteresis = 0; });
}

}  // namespace
}  // namespace trident
