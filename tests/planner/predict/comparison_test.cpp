// Tests what was predicted of a run beside what was measured: which part each measured second belongs to, and what is named as off.
#include "planner/predict/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/available_memory.h"
#include "core/check.h"
#include "core/file_io.h"
#include "planner/predict/forecast.h"
#include "planner/predict/plan_timeline.h"
#include "planner/predict/simulated_run_forecast.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"
#include "tests/train/priced_run.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

using testing::FakePrices;
using testing::grid;
using testing::inputs_of;

PredictedStep step_of(const RunPlan& plan, const WorkPrices& prices) {
  const Forecast forecast = forecast_run(plan, prices, nullptr);
  return predicted_step("fake", forecast.step, forecast.price, prices);
}

double& of(std::array<double, kNumStepParts>& values, StepPart part) { return values[static_cast<std::size_t>(part)]; }

// Different binary shares of a second everywhere, so that sums are exact and tell what they are of.
StepTimes some_times() {
  StepTimes t;
  const std::vector<StepPart> parts{StepPart::kForward, StepPart::kBackward, StepPart::kMessages,  StepPart::kGather,
                                    StepPart::kReduce,  StepPart::kNorm,     StepPart::kOptimizer, StepPart::kData};
  double wall = 8;
  for (const StepPart part : parts) of(t.wall, part) = wall, of(t.cpu, part) = wall / 4, wall /= 2;
  of(t.waited, StepPart::kForward) = 1, of(t.waited, StepPart::kBackward) = 2, of(t.waited, StepPart::kNorm) = 0.1875;
  t.waited_for = {1 + 0.0625, 1.5, 0.5 + 0.125};  // tp and statistics; pp; dp within computes and of the norm
  t.causes = {.tensor = 1.25, .reduced = 0.1875, .reduced_waited = 0.125, .reduced_cpu = 0.03125, .statistics_waited = 0.0625};
  t.step = 16;
  t.steps = 1;
  return t;
}

MeasuredRun measured(const StepTimes& times, double ranks_at_once = 8) {
  MeasuredRun run;
  run.times = times, run.steps = 5, run.ranks = 8, run.ranks_at_once = ranks_at_once, run.arena = 1000;
  return run;
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::map<std::string, ComparedPart> by_name(const Comparison& c) {
  std::map<std::string, ComparedPart> named;
  for (const ComparedPart& part : c.parts) named[std::string(to_string(part.parts.front()))] = part;
  return named;
}

TEST(Comparison, EveryMeasuredSecondIsInOnePart) {
  const RunInputs inputs = grid();
  const Comparison c = compare(step_of(inputs.plan, FakePrices()), "", {1000, {}}, measured(some_times()));
  auto parts = by_name(c);
  EXPECT_EQ(parts.at("compute").measured, 8 + 4 - 3 - 0.25);  // of the collectives a quarter of a second was work
  EXPECT_EQ(parts.at("tp").measured, 1.25);
  EXPECT_EQ(parts.at("bubble").measured, 1.5 + 0.0625 + 2) << "waits for messages and for the others' sums, and issuing";
  EXPECT_EQ(parts.at("dp").measured, 0.5 + 0.1875 + 1 + 0.5);
  EXPECT_EQ(parts.at("optimizer").measured, 0.25 - 0.1875 - 0.0625 + 0.125);
  EXPECT_EQ(c.step_measured, 16);
  double all = 0;
  for (const ComparedPart& part : c.parts) all += part.measured;
  EXPECT_EQ(all, 16);
}

TEST(Comparison, EveryPredictedSecondIsInOnePart) {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {}, {"parallel=2DP x 2PP x 2TP", "recompute.policy=full"}, {"parallel=4DP", "parallel.zero=zero3"}, {"parallel=4PP"}}) {
    const RunInputs inputs = inputs_of(settings);
    const FakePrices prices;
    const Forecast forecast = forecast_run(inputs.plan, prices, nullptr);
    const PredictedStep step = predicted_step("fake", forecast.step, forecast.price, prices);
    EXPECT_NEAR(step.parts.total(), forecast.price.seconds, 1e-12);
    const Comparison c = compare(step, "", {1000, {}}, measured(some_times()));
    EXPECT_NEAR(c.step_predicted, forecast.price.seconds, 1e-12) << ::testing::PrintToString(settings);
    for (const ComparedPart& part : c.parts) EXPECT_GE(part.predicted, 0) << to_string(part.parts.front());
  }
}

TEST(Comparison, WithFewerCoresThanRanksTheProcessorsWorkIsCompared) {
  const RunInputs inputs = grid();
  const FakePrices prices;
  const PredictedStep step = step_of(inputs.plan, prices);
  const StepTimes times = some_times();
  const Comparison c = compare(step, "", {1000, {}}, measured(times, 2));
  EXPECT_EQ(c.clock, Comparison::Clock::kProcessor);
  EXPECT_EQ(c.step_measured, 4 * times.computing());
  // All work of all ranks, whatever hides it: by hand from the records.
  const Forecast forecast = forecast_run(inputs.plan, prices, nullptr);
  double work = 0, outside = 0;
  for (std::size_t stage = 0; stage < forecast.step.records.size(); ++stage) {
    const StepRecord& record = forecast.step.records[stage];
    const std::vector<std::int64_t> counts = record.counts();
    for (std::size_t pass = 0; pass < counts.size(); ++pass)
      work += static_cast<double>(counts[pass]) * price_pass(record.passes[pass], forecast.step.grid, prices).total();
    const auto& program = forecast.step.programs[stage].instructions;
    for (std::size_t at = 0; at < program.size(); ++at)  // receives were priced where they were sent
      if (program[at].is_receive()) work -= price_pass(record.pass(at), forecast.step.grid, prices).total();
    outside = std::max(outside, prices.step_seconds() + price_pass(record.passes[0], forecast.step.grid, prices).total());
    work -= price_pass(record.passes[0], forecast.step.grid, prices).total();
  }
  EXPECT_NEAR(c.step_predicted, 4 * (work / 2 + outside), 1e-9);
  expect_parts(to_lines(c).front(), {"CPU time of a step, all 8 ranks, over the 2 that work at once"});
}

// Returns the times that would be measured if every instruction took as long as `step` says.
StepTimes times_of(const PredictedStep& step) {
  using enum TimePart;
  StepTimes t;
  of(t.wall, StepPart::kForward) = step.parts[kCompute] + step.parts[kRecompute] + step.parts[kLaunch] + step.slowed +
                                   step.parts[kTensor] + step.parts[kBubble] + step.parts[kPipeline] + step.parts[kData] -
                                   step.slowed;
  t.waited_for = {0, step.parts[kBubble] + step.parts[kPipeline], step.parts[kData] - step.slowed};
  of(t.waited, StepPart::kForward) = t.waited_for[1] + t.waited_for[2];
  t.causes.tensor = step.parts[kTensor];
  of(t.wall, StepPart::kOptimizer) = step.parts[kOptimizer];
  t.step = step.parts.total();
  for (std::size_t part = 0; part < kNumStepParts; ++part) t.cpu[part] = t.wall[part] - t.waited[part];  // a core to itself
  return t;
}

std::vector<std::string> off_of(const PredictedStep& predicted, const PredictedStep& real, double bubble) {
  MeasuredRun run = measured(times_of(real));
  run.bubble_over_ideal = bubble;
  std::vector<std::string> names;
  for (const Comparison::Off& off : compare(predicted, "", {1000, {}}, run).off()) names.push_back(off.what);
  return names;
}

TEST(Comparison, WhatIsOffIsNamedAndNothingElse) {
  const RunInputs inputs = grid();
  const PredictedStep right = step_of(inputs.plan, FakePrices());
  EXPECT_EQ(off_of(right, right, right.bubble_over_ideal), std::vector<std::string>{});
  // Prices of operations that are twice what they take, all else alike.
  PredictedStep twice = right;
  twice.parts[TimePart::kCompute] *= 2, twice.parts[TimePart::kRecompute] *= 2;
  EXPECT_EQ(off_of(twice, right, right.bubble_over_ideal), std::vector<std::string>{"compute + recompute"});
  PredictedStep slow_links = right;
  slow_links.parts[TimePart::kTensor] += right.parts.total();
  EXPECT_EQ(off_of(slow_links, right, right.bubble_over_ideal), std::vector<std::string>{"tp"});
  EXPECT_EQ(off_of(right, right, right.bubble_over_ideal * 1.5 + 0.3), std::vector<std::string>{"the bubble"});
  // Two parts that make up for each other are off, too.
  PredictedStep moved = right;
  moved.parts[TimePart::kTensor] += 0.2 * right.parts.total(), moved.parts[TimePart::kCompute] -= 0.2 * right.parts.total();
  EXPECT_EQ(off_of(moved, right, right.bubble_over_ideal), (std::vector<std::string>{"compute + recompute", "tp"}));
  // Nine percent everywhere are not named; a little everywhere that makes more than ten together is, by the largest.
  PredictedStep nine = right;
  for (double& seconds : nine.parts.seconds) seconds *= 1.09;
  EXPECT_EQ(off_of(nine, right, right.bubble_over_ideal), std::vector<std::string>{});
  PredictedStep spread = right;
  for (double& seconds : spread.parts.seconds) seconds += 0.03 * right.parts.total();
  EXPECT_EQ(off_of(spread, right, right.bubble_over_ideal).size(), 1u);
}

// Repeats say how much a mean is worth: a prediction in the midst of them is not called a mistake without saying so.
TEST(Comparison, StepsThatDifferByMoreThanTheMissAreSaid) {
  const RunInputs inputs = grid();
  const PredictedStep right = step_of(inputs.plan, FakePrices());
  PredictedStep slow = right;  // what is measured: as when others have the cores
  slow.parts[TimePart::kBubble] += 0.3 * right.parts.total();
  MeasuredRun run = measured(times_of(slow));
  run.bubble_over_ideal = right.bubble_over_ideal;
  run.steps = 5;
  const double predicted = right.parts.total(), taken = slow.parts.total();
  const auto last_line = [&](double low, double high) {
    run.spread = {low, high};
    const Comparison c = compare(right, "", {1000, {}}, run);
    const std::vector<std::string> lines = to_lines(c);
    EXPECT_NE((lines.end() - 2)->find("half of the steps took"), std::string::npos) << *(lines.end() - 2);
    EXPECT_EQ(off_lines(c).size(), 1u);
    return lines.back();
  };
  const std::string plain = last_line(1.1 * predicted, 1.1 * taken), unsure = last_line(0.9 * predicted, 1.1 * taken);
  expect_parts(plain, {"more than 10 % off: bubble"});
  EXPECT_EQ(plain.find("steps of this run differ"), std::string::npos) << plain;
  EXPECT_EQ(unsure, plain + "; steps of this run differ by more than that");
  // The first step by itself is shown and not judged.
  run.steps = 1, run.first_step_alone = true;
  const Comparison first = compare(right, "", {1000, {}}, run);
  EXPECT_TRUE(first.off().empty());
  EXPECT_FALSE(first.spread);
  expect_parts(to_lines(first).front(), {"the first step alone"});
  EXPECT_DOUBLE_EQ(first.step_measured, taken);
  EXPECT_TRUE(to_json(first).find("first_step_alone")->as_bool());
}

TEST(Comparison, TheMiddleHalfLeavesOutliersOut) {
  const auto half = [](std::vector<double> values) {
    const NumberRange found = middle_half(std::move(values));
    return std::pair(found.low, found.high);
  };
  EXPECT_EQ(half({}), std::pair(0.0, 0.0));
  EXPECT_EQ(half({3}), std::pair(3.0, 3.0));
  EXPECT_EQ(half({4, 2}), std::pair(2.0, 4.0));
  EXPECT_EQ(half({9, 1, 5, 3, 1000}), std::pair(3.0, 9.0));
  std::vector<double> many(1000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(many.size() - i);
  EXPECT_EQ(half(many), std::pair(250.0, 751.0));
}

TEST(Comparison, MemoryThatIsOffIsNamed) {
  MeasuredRun run = measured(some_times());
  run.arena = 1200, run.resident = 5000;
  run.ranks = 4, run.bubble_over_ideal = 0.2, run.bubble_of_flops = 0.25;
  const Comparison c = compare({}, "none came with it", {1000, 5200}, run);
  ASSERT_EQ(c.off().size(), 1u);
  EXPECT_EQ(c.off()[0].what, "the arena");
  const std::vector<std::string> lines = to_lines(c);
  EXPECT_EQ(lines.front(), "predicted beside measured, without the time of a step: none came with it");
  expect_parts(lines.back(), {"more than 10 % off: the arena"});
  const JsonValue json = to_json(c);
  EXPECT_EQ(json.find("not_predicted")->as_string(), "none came with it");
  EXPECT_EQ(json.find("step_seconds"), nullptr);
  EXPECT_EQ(json.find("bubble_over_ideal")->find("predicted")->as_number(), 0.25) << "if FLOPs alone took time";
  EXPECT_EQ(json.find("arena_bytes")->find("predicted")->as_integer(), 1000);
  EXPECT_EQ(json.find("resident_bytes")->find("measured")->as_integer(), 5000);
  EXPECT_EQ(json.find("off")->items().size(), 1u);
}

TEST(Comparison, OnGpusTheStepIsComparedAsAWhole) {
  MeasuredRun run = measured(some_times());
  run.on_host = false;
  const RunInputs inputs = grid();
  const PredictedStep step = step_of(inputs.plan, FakePrices());
  const Comparison c = compare(step, "", {1000, {}}, run);
  EXPECT_TRUE(c.parts.empty());
  EXPECT_EQ(c.step_measured, 16);
  EXPECT_EQ(c.step_predicted, step.parts.total());
  ASSERT_FALSE(c.off().empty());
  EXPECT_EQ(c.off()[0].what, "the step");
}

TEST(Comparison, WallTimeOnCoresThatOthersHaveIsSaid) {
  const RunInputs inputs = grid();
  MeasuredRun run = measured(some_times());  // a quarter of 15.9 seconds worked, 3.2 waited, of 16
  const PredictedStep step = step_of(inputs.plan, FakePrices());
  const Comparison c = compare(step, "", {1000, {}}, run);
  EXPECT_EQ(c.worked, run.times.computing());
  const std::string lines = text_of(to_lines(c));
  expect_parts(lines, {"other work had the cores: a rank worked 3984.4 ms of a step of 16000.0 ms; times are not judged"});
  for (const Comparison::Off& off : c.off()) EXPECT_FALSE(off.of_time) << off.what;
  EXPECT_EQ(text_of(off_lines(c)).find("compute"), std::string::npos) << "no part is blamed for what others took";
  EXPECT_TRUE(to_json(c).find("worked_seconds"));
  for (double& seconds : run.times.cpu) seconds *= 4;
  EXPECT_FALSE(compare(step, "", {1000, {}}, run).off().empty()) << "with its cores to itself a run is judged";
  EXPECT_EQ(compare(step, "", {1000, {}}, run).worked, std::nullopt);
}

TEST(Comparison, ARankThatWorksAndWaitsForNineTenthsHasItsCores) {
  StepTimes times;
  times.step = 1;
  const auto worked = [&](double cpu, double waited) {
    times.cpu[0] = cpu, times.waited[0] = waited;
    return worked_beside_others(times);
  };
  EXPECT_EQ(worked(0.91, 0), std::nullopt);
  EXPECT_EQ(worked(0.89, 0), 0.89);
  EXPECT_EQ(worked(0.5, 0.41), std::nullopt) << "a rank that waits for others is not robbed";
  EXPECT_EQ(worked(0.5, 0.39), 0.5);
}

// In real steps collectives within computes are held apart where there are some, and so is the wait for reductions.
TEST(Comparison, CausesOfRealSteps) {
  for (const auto& [layout, has_tensor] : {std::pair{"2TP", true}, {"2DP", false}, {"2PP", false}}) {
    testing::LayoutRunOptions options;
    options.after_steps = [has_tensor = has_tensor](RankTrainer& trainer) {
      const StepCauses& causes = trainer.causes();
      double computes = 0, norm = 0;
      const auto& program = trainer.plan().step_program(trainer.context().rank()).instructions;
      for (std::size_t i = 0; i < program.size(); ++i) {
        const InstructionTimes& t = trainer.instruction_times()[i];
        if (program[i].is_compute()) computes += t.end - t.start;
        if (program[i].kind == InstructionKind::kGradNorm) norm += t.end - t.start;
      }
      if (has_tensor)
        EXPECT_GT(causes.tensor, 0);
      else
        EXPECT_LT(causes.tensor, 0.05 * computes) << "groups of one cost a call, and the norm's own are not counted";
      EXPECT_LE(causes.tensor, computes);
      EXPECT_GT(causes.reduced, 0);
      EXPECT_LE(causes.reduced_waited, causes.reduced);
      EXPECT_LE(causes.reduced + causes.statistics_waited, norm + 1e-5);
    };
    testing::run_layout(testing::tiny_llama_config(), {std::string("parallel=") + layout}, options);
  }
}

TEST(StepTimelines, ShowWaitingApartAndMayBeCut) {
  StepProgram program;
  program.instructions = {{.kind = InstructionKind::kForward, .unit = 1, .micro_batch = 0},
                          {.kind = InstructionKind::kSendActivation},
                          {.kind = InstructionKind::kReduceGradients, .unit = 1},
                          {.kind = InstructionKind::kGradNorm}};
  const std::vector<std::vector<StepSpan>> spans{{{0, 3, 1}, {3, 3, 0}, {2, 4, 0}, {3, 5, 2}}};
  const Timeline timeline = step_timeline("a step", {program}, spans);
  ASSERT_EQ(timeline.kinds.size(), 3u) << "forward, waiting and reduce: the norm is all waiting";
  ASSERT_EQ(timeline.rows[0].spans.size(), 4u);
  const auto kind = [&](std::size_t span) {
    return timeline.kinds[static_cast<std::size_t>(timeline.rows[0].spans[span].kind)].name;
  };
  EXPECT_EQ(kind(0) + ", " + kind(1) + ", " + kind(2) + ", " + kind(3), "waiting, forward, reduce gradients, waiting");
  EXPECT_EQ(timeline.rows[0].spans[1].start, 1);
  EXPECT_EQ(timeline.rows[0].spans[1].end, 3);
  EXPECT_EQ(timeline.rows[0].spans[1].number, 0);
  EXPECT_EQ(timeline.rows[0].spans[2].lane, TimelineLane::kLower);
  const Timeline cut = step_timeline("a step", {program}, spans, 2);
  EXPECT_EQ(cut.rows[0].spans.size(), 2u);
  expect_parts(cut.title, {"first 2"});
}

}  // namespace
}  // namespace trident
