// Tests that the time of steps beside their operations is found again in steps that were made of known constants.
#include "planner/bench/step_overheads.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "planner/bench/calibrate_training.h"
#include "planner/bench/calls_in_training.h"
#include "planner/predict/cpu_forecast.h"
#include "planner/price/cpu_prices.h"
#include "tests/support/layout_run.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

StepSum step(double calls, double collectives, double roots, double beside) {
  StepSum sum;
  sum.priced = 0.01, sum.measured = 0.01 + beside;
  sum.calls = calls, sum.collectives = collectives, sum.roots = roots;
  return sum;
}

TEST(StepOverheads, OneColumnIsFoundAgain) {
  std::vector<StepSum> sums;
  for (const double calls : {10.0, 70.0, 300.0}) sums.push_back(step(0, calls, 0, 12e-6 * calls));
  EXPECT_NEAR(seconds_of_each(sums, &StepSum::collectives), 12e-6, 1e-15);
  sums[1].measured *= 1.01;  // what disturbs one of them moves the others little
  EXPECT_NEAR(seconds_of_each(sums, &StepSum::collectives), 12e-6, 1e-6);
}

TEST(StepOverheads, AreNeverBelowZeroAndNoneWithoutSteps) {
  const std::vector<StepSum> faster{step(0, 10, 0, -1e-4), step(0, 40, 0, -3e-4)}, without{step(0, 0, 0, 1e-3)};
  EXPECT_EQ(seconds_of_each(faster, &StepSum::collectives), 0);
  EXPECT_EQ(seconds_of_each(without, &StepSum::collectives), 0);
  EXPECT_EQ(seconds_of_each({}, &StepSum::collectives), 0);
  EXPECT_EQ(seconds_of_each({}, &StepSum::collectives, &StepSum::roots), std::pair(0.0, 0.0));
}

TEST(StepOverheads, TwoColumnsAreToldApart) {
  std::vector<StepSum> sums;
  for (const double calls : {10.0, 70.0, 300.0})
    for (const double roots : {0.1, 2.0}) sums.push_back(step(0, calls, roots, 5e-6 * calls + 3e-4 * roots));
  const auto [of_call, of_root] = seconds_of_each(sums, &StepSum::collectives, &StepSum::roots);
  EXPECT_NEAR(of_call, 5e-6, 1e-14);
  EXPECT_NEAR(of_root, 3e-4, 1e-12);
}

TEST(StepOverheads, WhereOneWouldBeBelowZeroTheOtherIsFittedAlone) {
  std::vector<StepSum> sums;
  for (const double calls : {10.0, 70.0, 300.0})
    for (const double roots : {0.1, 2.0}) sums.push_back(step(0, calls, roots, 5e-6 * calls - 1e-5 * roots));
  const double alone = seconds_of_each(sums, &StepSum::collectives);
  EXPECT_GT(alone, 4e-6);
  EXPECT_EQ(seconds_of_each(sums, &StepSum::collectives, &StepSum::roots), std::pair(alone, 0.0));
  EXPECT_EQ(seconds_of_each(sums, &StepSum::roots, &StepSum::collectives), std::pair(0.0, alone));
}

TEST(StepOverheads, MediansTakeNoNoticeOfOneThatWasDisturbed) {
  std::vector<StepSum> sums;
  for (const double roots : {0.01, 0.02, 0.3, 0.7}) sums.push_back(step(0, 0, roots, 3e-4 * roots));
  EXPECT_NEAR(median_of_each(sums, &StepSum::roots), 3e-4, 1e-12);
  sums[1].measured *= 40;
  EXPECT_NEAR(median_of_each(sums, &StepSum::roots), 3e-4, 1e-12);
  sums.push_back(step(0, 0, 0, 1));  // has none
  EXPECT_NEAR(median_of_each(sums, &StepSum::roots), 3e-4, 1e-12);
  EXPECT_EQ(median_of_each({}, &StepSum::roots), 0);
  EXPECT_EQ(median_of_each(std::vector{step(0, 0, 1, -1e-3)}, &StepSum::roots), 0);
}

// This case answered 0 once, whatever was measured.
TEST(StepOverheads, ColumnsInProportionAreRefused) {
  const std::vector<StepSum> sums{step(0, 10, 20, 1e-4), step(0, 30, 60, 3e-4)};
  EXPECT_THROW(seconds_of_each(sums, &StepSum::collectives, &StepSum::collectives), InternalError);
  EXPECT_THROW(seconds_of_each(sums, &StepSum::collectives, &StepSum::roots), InternalError);
}

RunPlan plan_of(const std::vector<std::string>& settings) {
  std::vector<std::string> all{"run.dir=\"unused\"", "run.steps=1", "data.train=\"unused\"", "device=\"cpu\"",
                               "run.threads_per_rank=1"};
  all.insert(all.end(), settings.begin(), settings.end());
  const TrainConfig config = parse_train_config(testing::tiny_llama_config(), "test", all);
  return make_run_plan(config, resolve_model(config), 0, kAnyMachine);
}

// As calibration measures them, on a machine whose constants are those of `rates`.
TrainedSteps steps_by(const CpuRates& rates, const std::vector<std::string>& settings) {
  TrainedSteps steps{plan_of(settings)};
  const CpuForecast forecast = forecast_on_processors_here(steps.plan, rates);
  CpuRates bare = rates;
  bare.constants = {};
  for (CollectiveTimes& t : bare.collectives) t.seconds = LogTable({{1}}, {1e-12}, {0});
  const CpuForecast operations = forecast_on_processors_here(steps.plan, bare);
  const double ranks = steps.plan.world_size();
  steps.cpu = forecast.cpu_seconds / ranks;
  steps.wall = forecast.forecast.price.seconds;
  steps.operations = operations.cpu_seconds / ranks;
  return steps;
}

TEST(StepOverheads, ConstantsOfAMachineAreFoundAgainInItsSteps) {
  CpuRates rates = shipped_cpu_rates();
  rates.cores = 2;
  rates.constants = {.step_seconds = 90e-6, .call_seconds = 0.7e-6, .skew_root_seconds = 2e-4,
                     .shared_seconds = 17e-6, .shared_root_seconds = 9e-4};
  std::vector<TrainedSteps> steps;
  for (const char* sequence : {"batch.sequence=8", "batch.sequence=32"}) {
    steps.push_back(steps_by(rates, {sequence}));
    steps.push_back(steps_by(rates, {sequence, "batch.micro=4"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.tensor=2"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.tensor=2", "parallel.sequence_parallel=true", "batch.micro=4"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.tensor=4"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.tensor=2", "parallel.pipeline=2"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.data=4", "parallel.zero=\"zero3\""}));
    steps.push_back(steps_by(rates, {sequence, "parallel.pipeline=4"}));
  }
  CpuRates found = rates;
  fit_constants(steps, "made up", found);
  EXPECT_NEAR(found.constants.step_seconds, 90e-6, 1e-9);
  EXPECT_NEAR(found.constants.call_seconds, 0.7e-6, 1e-11);
  EXPECT_NEAR(found.constants.collective_seconds, 0, 1e-8);
  EXPECT_NEAR(found.constants.skew_root_seconds, 2e-4, 1e-6);
  EXPECT_NEAR(found.constants.shared_seconds, 17e-6, 1e-9);
  EXPECT_NEAR(found.constants.shared_root_seconds, 9e-4, 1e-8);
  EXPECT_EQ(found.constants_source, "made up");
}

TEST(Disturbance, IsToldWhereStepsTookLongerThanTheyComputed) {
  std::vector<TrainedSteps> steps{{plan_of({}), 0.010, 0.0104, 0}, {plan_of({}), 0.030, 0.0314, 0}};
  EXPECT_EQ(disturbance(steps), "");
  EXPECT_EQ(disturbance({}), "");
  steps.push_back({plan_of({"parallel.tensor=2"}), 0.010, 0.020, 0});
  EXPECT_EQ(disturbance(steps), "") << "ranks that wait for each other are no sign";
  steps[1].wall = 0.0396;
  EXPECT_EQ(disturbance(steps),
            "other programs had the cores as well: steps took 25 % longer than they computed, and waits of ranks and what several "
            "threads take are too long by that; calibrate again when nothing else runs");
}

// How tables of calls alone are brought to what the same calls took in training.

LogTable flat(std::size_t axes, double seconds) {
  std::vector<std::vector<double>> sizes(axes, {64, 1024});
  return {sizes, std::vector<double>(std::size_t{1} << axes, seconds), std::vector<double>(axes, 1)};
}

CpuRates rates_of_two() {
  CpuRates rates;
  for (const int threads : {1, 2}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Transpose a : {Transpose::kNo, Transpose::kYes})
        rates.products.push_back({threads, dtype, a, Transpose::kNo, Accumulate::kNo, flat(3, 1e-5), "s"});
      rates.attention.push_back({threads, dtype, "attention_forward", flat(2, 1e-5), "s"});
    }
  }
  return rates;
}

CallTimes product(Transpose a, double bytes, double seconds) {
  return {"matmul", bytes, MatmulShape{128, 128, 128, a, Transpose::kNo, DType::kF32, DType::kF32, Accumulate::kNo},
          std::vector<double>(5, seconds)};
}

CallTimes attention(double seconds) {
  AttentionShape shape;
  shape.batch = 2, shape.query_heads = 4, shape.query_length = shape.key_length = 128, shape.head_dim = 50;
  return {"attention_forward", 1e5, shape, std::vector<double>(5, seconds)};
}

TEST(CallsInTraining, CountOneThatWasDisturbedAsThriceTheMedian) {
  EXPECT_DOUBLE_EQ(typical_seconds({1, 2, 1, 1, 90}, 1), (1 + 2 + 1 + 1 + 3) / 5.0);
  EXPECT_DOUBLE_EQ(typical_seconds({1, 2, 1, 1, 90}, 2), 1);
  EXPECT_DOUBLE_EQ(typical_seconds({4}, 1), 4);
  EXPECT_ANY_THROW(typical_seconds({}, 1));
}

TEST(CallsInTraining, AreKeptByOperationBytesAndShape) {
  CallMeter meter;
  for (const double seconds : {1.0, 2.0}) meter.add(product(Transpose::kNo, 1000, seconds));
  meter.add(product(Transpose::kYes, 1000, 3));
  meter.add(attention(4));
  const std::vector<CallTimes> calls = meter.calls();
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[1].seconds.size(), 10U);
  EXPECT_EQ(calls[2].seconds, std::vector<double>(5, 3.0));
}

TEST(CallsInTraining, PointsNearEachOtherAreOne) {
  const std::vector<std::pair<double, double>> points{{100, 1}, {121, 4}, {200, 9}};
  const auto [sizes, values] = merged(points);
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_NEAR(sizes[0], 110, 1e-9);
  EXPECT_NEAR(values[0], 2, 1e-12);
  EXPECT_NEAR(values[1], 9, 1e-12);
}

TEST(CallsInTraining, ScaleTheTablesOfTheirKindAndNoOther) {
  CpuRates rates = rates_of_two();
  const std::vector<CallTimes> calls{product(Transpose::kNo, 2e5, 2.1e-5), attention(8 * 3e-5 + 1e-6)};
  fit_to_training(calls, 1e-6, 1, DType::kF32, rates);
  const std::array<double, 3> sides{128, 128, 128};
  for (const ProductTimes& t : rates.products) {
    const bool fitted = t.threads == 1 && t.in == DType::kF32 && t.transpose_a == Transpose::kNo;
    EXPECT_NEAR(t.seconds.at(sides), fitted ? 2e-5 : 1e-5, 1e-10) << t.threads << to_string(t.in);
  }
  const std::array<double, 2> sizes{128, 64};
  for (const AttentionTimes& t : rates.attention)
    EXPECT_NEAR(t.seconds_per_head.at(sizes), t.threads == 1 && t.dtype == DType::kF32 ? 3e-5 : 1e-5, 1e-10);
}

// Ranks of several threads take the cores from each other: calls of several took twice as long by the clock.
TEST(CallsInTraining, OfDividedModelsCountWhereNobodyElseHasThem) {
  CallTimes split{"split_loss", 100, {}, {4e-6}}, norm{"norm", 100, {}, {9e-6}};
  const std::vector<CallTimes> alone{{"norm", 200, {}, {2e-6}}}, divided{norm, split};
  EXPECT_EQ(calls_beside(alone, divided, 1).size(), 2U);
  const std::vector<CallTimes> of_two_threads = calls_beside(alone, divided, 2);
  ASSERT_EQ(of_two_threads.size(), 1U);
  EXPECT_EQ(of_two_threads.front().operation, "split_loss");
  EXPECT_EQ(of_two_threads.front().seconds, split.seconds);
}

TEST(CallsInTraining, GradientsThatAreAddedUpAreFittedApart) {
  CpuRates rates = rates_of_two();
  rates.products.push_back({1, DType::kF32, Transpose::kYes, Transpose::kNo, Accumulate::kYes, flat(3, 1e-5), "s"});
  CallTimes first = product(Transpose::kYes, 2e5, 2e-5), later = product(Transpose::kYes, 3e5, 5e-5);
  std::get<MatmulShape>(later.shape).accumulate = Accumulate::kYes;
  fit_to_training(std::vector{first, later}, 0, 1, DType::kF32, rates);
  const std::array<double, 3> sides{128, 128, 128};
  for (const ProductTimes& t : rates.products) {
    if (t.threads != 1 || t.in != DType::kF32 || t.transpose_a == Transpose::kNo) continue;
    EXPECT_NEAR(t.seconds.at(sides), t.accumulate == Accumulate::kYes ? 5e-5 : 2e-5, 1e-10);
  }
}

// Small products have their operands at hand, where calls alone read theirs from afar: each size has its own ratio.
TEST(CallsInTraining, RatiosGoByBytes) {
  CpuRates rates = rates_of_two();
  fit_to_training(std::vector{product(Transpose::kNo, 49152, 0.5e-5), product(Transpose::kNo, 1e7, 1.5e-5)}, 0, 1, DType::kF32,
                  rates);
  const std::array<double, 3> small{64, 64, 64}, large{1024, 1024, 1024};
  EXPECT_NEAR(rates.products.front().seconds.at(small), 0.5e-5, 0.02e-5);
  EXPECT_NEAR(rates.products.front().seconds.at(large), 1.5e-5, 0.02e-5);
}

}  // namespace
}  // namespace trident
