// What steps take beside their operations is found again in steps that were made of known constants.
#include "planner/bench/step_overheads.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/check.h"
#include "planner/bench/calibrate_training.h"
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

// What answered 0 once, whatever was measured.
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

}  // namespace
}  // namespace trident
