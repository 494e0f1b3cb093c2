// Tests what was predicted of a run beside what was measured: which part each measured second belongs to, and what is named as off.
#include "planner/predict/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
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

namespace trident {
namespace {

using testing::FakePrices;
using testing::grid;
using testing::inputs_of;

PredictedStep step_of(const RunPlan& plan, const WorkPrices& prices) {
  const Forecast forecast = forecast_run(plan, prices, nullptr);
  return predicted_step("fake", forecast.step, forecast.price, prices);
}

// As step_of(), and as long as steps that are judged.
PredictedStep long_step_of(const RunPlan& plan) {
  PredictedStep step = step_of(plan, FakePrices());
  for (double& seconds : step.parts.seconds) seconds *= 1024;
  step.slowed *= 1024;
  return step;
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
  t.waited_for = {1, 1.5, 0.5 + 0.125, 0.0625};  // tp; pp; dp within computes and of the norm; statistics
  t.causes = {.tensor = 1.25, .reduced = 0.1875, .reduced_waited = 0.125, .reduced_cpu = 0.03125};
  t.step = 16;
  t.steps = 1;
  return t;
}

MeasuredRun measured(const StepTimes& times, double ranks_at_once = 8) {
  MeasuredRun run;
  run.times = times, run.timed_steps = 5, run.granted_bytes = 1000;
  run.ranks = 8, run.stages = 2, run.ranks_at_once = ranks_at_once;
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

TEST(Comparison, OneStageHasNoBubble) {
  MeasuredRun run = measured(some_times());
  run.stages = 1;
  const Comparison c = compare(step_of(grid().plan, FakePrices()), "", {1000, {}}, run);
  EXPECT_EQ(by_name(c).at("bubble").measured, 0);
  EXPECT_NE(to_json(c).find("bubble_over_ideal"), nullptr) << "its ranks may wait for each other";
  EXPECT_EQ(to_text(comparison_table(c)).find("bubble (idle"), std::string::npos);
  EXPECT_EQ(c.step_measured, 16);
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
  EXPECT_TRUE(c.by_processor);
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
  expect_parts(to_lines(c).details.front(), {"CPU time of a step, all 8 ranks, over the 2 that work at once"});
  Comparison waiting = c;
  waiting.step_wall = 2 * c.step_measured;
  expect_parts(to_lines(waiting).shown.front(), {": CPU time of a step ", "; the step itself took "});
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
  run.replayed_bubble = bubble;
  std::vector<std::string> names;
  for (const Comparison::Off& off : compare(predicted, "", {1000, {}}, run).off()) names.push_back(off.what);
  return names;
}

TEST(Comparison, WhatIsOffIsNamedAndNothingElse) {
  const RunInputs inputs = grid();
  const PredictedStep right = long_step_of(inputs.plan);
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
  const PredictedStep right = long_step_of(inputs.plan);
  PredictedStep slow = right;  // what is measured: as when others have the cores
  slow.parts[TimePart::kBubble] += 0.3 * right.parts.total();
  MeasuredRun run = measured(times_of(slow));
  run.replayed_bubble = right.bubble_over_ideal;
  run.timed_steps = 5;
  const double predicted = right.parts.total(), taken = slow.parts.total();
  const auto last_line = [&](double low, double high) {
    run.step_spread = {low, high};
    const Comparison c = compare(right, "", {1000, {}}, run);
    const LogLines lines = to_lines(c);
    expect_parts(lines.details.back(), {"half of the steps took"});
    expect_parts(lines.shown.front(), {": a step ", " and ", "; run.log has the parts"});
    EXPECT_EQ(lines.shown.size(), 2u) << "the table is for run.log";
    EXPECT_EQ(off_lines(c).size(), 1u);
    return lines.shown.back();
  };
  const std::string plain = last_line(1.1 * predicted, 1.1 * taken), unsure = last_line(0.9 * predicted, 1.1 * taken);
  expect_parts(plain, {"more than 10 % off: bubble"});
  EXPECT_EQ(plain.find("steps of this run differ"), std::string::npos) << plain;
  EXPECT_EQ(unsure, plain + "; steps of this run differ by more than that");
  // The first step by itself is shown and not judged.
  run.timed_steps = 1, run.first_step_alone = true;
  const Comparison first = compare(right, "", {1000, {}}, run);
  EXPECT_TRUE(first.off().empty());
  EXPECT_FALSE(first.spread);
  expect_parts(text_of(to_lines(first).shown), {"the first step alone", "; times are not judged"});
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
  run.granted_bytes = 1200, run.resident_bytes = 5000;
  run.ranks = 4, run.replayed_bubble = 0.2, run.bubble_of_flops = 0.25;
  const Comparison c = compare({}, "none came with it", {1000, 5200}, run);
  ASSERT_EQ(c.off().size(), 1u);
  EXPECT_EQ(c.off()[0].what, "the arena");
  const std::vector<std::string> lines = to_lines(c).shown;
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
  const std::string lines = text_of(to_lines(c).shown);
  expect_parts(lines, {"other work had the cores: a rank worked 3984.4 ms of a step of 16000.0 ms; times are not judged"});
  EXPECT_EQ(lines.find(" %"), lines.npos) << "nor is their share given: " << lines;
  for (const Comparison::Off& off : c.off()) EXPECT_FALSE(off.of_time) << off.what;
  EXPECT_EQ(text_of(off_lines(c)).find("compute"), std::string::npos) << "no part is blamed for what others took";
  EXPECT_TRUE(to_json(c).find("worked_seconds"));
  EXPECT_TRUE(to_json(c).find("not_judged"));
  for (double& seconds : run.times.cpu) seconds *= 4;
  EXPECT_FALSE(compare(step, "", {1000, {}}, run).off().empty()) << "with its cores to itself a run is judged";
  EXPECT_NE(text_of(to_lines(compare(step, "", {1000, {}}, run)).shown).find(" %"), std::string::npos);
  run.timed_steps = 4;
  expect_parts(text_of(to_lines(compare(step, "", {1000, {}}, run)).shown),
               {"the mean is of 4 steps, fewer than 5; times are not judged"});
  run.timed_steps = 5;
  StepTimes short_times = run.times;
  for (auto* values : {&short_times.wall, &short_times.cpu, &short_times.waited})
    for (double& seconds : *values) seconds /= 4096;
  for (double& seconds : short_times.waited_for) seconds /= 4096;
  short_times.causes = {}, short_times.step /= 4096;
  MeasuredRun short_run = run;
  short_run.times = short_times;
  short_run.resident_bytes = 9000;
  const Comparison of_short = compare(step, "", {1000, 5000}, short_run);
  expect_parts(text_of(to_lines(of_short).shown), {"a step took less than 10 ms; times are not judged"});
  expect_parts(to_lines(of_short).shown.back(), {"more than 10 % off: resident memory, "});
  EXPECT_EQ(to_lines(of_short).shown.size(), 2u) << "the table stands in the files";
  for (const Comparison::Off& off : of_short.off()) EXPECT_FALSE(off.of_time) << off.what;
  run.profile_of_another = true;
  expect_parts(text_of(to_lines(compare(step, "", {1000, {}}, run)).shown),
               {"the profile is of another processor; times are not judged"});
  run.one_machine = true;
  const Comparison simulated = compare(step, "", {1000, {}}, run);
  expect_parts(text_of(to_lines(simulated).shown),
               {"the nodes are one machine, and each takes its cores for its own; times are not judged"});
  for (const Comparison::Off& off : simulated.off()) EXPECT_FALSE(off.of_time) << off.what;
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
      EXPECT_EQ(causes.tensor > 0, has_tensor) << causes.tensor << " s: groups of one hold nobody, and the norm's own do not count";
      EXPECT_LE(causes.tensor, computes);
      EXPECT_GT(causes.reduced, 0);
      EXPECT_LE(causes.reduced_waited, causes.reduced);
      EXPECT_LE(causes.reduced, norm);
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
  const std::vector<std::vector<InstructionTimes>> spans{{{0, 3, 0, 1}, {3, 3}, {2, 4}, {3, 5, 0, 2}}};
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
  EXPECT_TRUE(timeline.rows[0].spans[2].beside);
  const Timeline cut = step_timeline("a step", {program}, spans, 2);
  EXPECT_EQ(cut.rows[0].spans.size(), 2u);
  expect_parts(cut.title, {"first 2"});
}

// Tests what a run says of itself before it starts, where its prices come from, and what of a step and of memory is measured at its
// end.

TEST(SimulatedRunForecast, SaysWhatTheDryRanksSendAndThePrices) {
  const RunInputs inputs = grid();
  SimulatedRunForecast forecast(inputs, {.ranks_of_node = 8, .ranks_of_process = 8},
                                {std::make_shared<FakePrices>(), "fake", {}, {}});
  const RunForecast::Predicted predicted = forecast.predicted();
  EXPECT_EQ(predicted.bytes_sent, step_bytes_sent(inputs.plan));
  double parts = 0;
  for (const JsonMember& part : predicted.step.find("parts")->members()) parts += part.value.as_number();
  EXPECT_NEAR(parts, predicted.step.find("seconds")->as_number(), 1e-12);
  EXPECT_GT(predicted.step.find("parts")->find("recompute")->as_number(), 0);
}

TEST(SimulatedRunForecast, ACallWithoutAPriceIsSaidAndNoError) {
  const RunInputs inputs = grid();
  SimulatedRunForecast forecast(inputs, {.ranks_of_node = 8, .ranks_of_process = 8},
                       {std::make_shared<FakePrices>(1, "rms_norm_forward"), "fake", {}, {}});
  const RunForecast::Predicted predicted = forecast.predicted();
  EXPECT_EQ(predicted.bytes_sent, step_bytes_sent(inputs.plan));
  EXPECT_TRUE(predicted.step.is_null());
  RunSummary summary;
  summary.granted_bytes = inputs.dry_arenas.front();
  const std::vector<std::string> lines = forecast.compare(summary).shown;  // into a folder that is not there
  EXPECT_EQ(lines.front(),
            "predicted beside measured, without the time of a step: profile fake: no table operations rms_norm_forward");
  expect_parts(lines.back(), {"comparison.json"});
}

// A machine that no profile fits has the picture still, drawn as long as the step was.
TEST(SimulatedRunForecast, WithoutAProfileTheStepIsDrawnByFlopsAlone) {
  RunInputs inputs = grid();
  inputs.plan.config.run.dir = ::testing::TempDir();
  inputs.plan.config.log.report = true;
  SimulatedRunForecast forecast(inputs, {.ranks_of_node = 8, .ranks_of_process = 8}, {nullptr, "", "no profile", {}});
  std::vector<std::vector<InstructionTimes>> last_step;
  for (const StepProgram& program : inputs.plan.step_programs)
    for (auto& rank = last_step.emplace_back(); const Instruction& i : program.instructions)
      rank.push_back({.start = i.is_compute() ? 0.5 : 0.0, .end = 3.0});
  forecast.show_step(7, last_step);
  const JsonValue step = read_json_file(inputs.plan.config.run.dir + "/last_step.json");
  ASSERT_NE(step.find("measured"), nullptr);
  const JsonValue* const simulated = step.find("simulated");
  ASSERT_NE(simulated, nullptr);
  expect_parts(simulated->find("title")->as_string(), {"FLOPs alone", "as long as the measured step"});
  EXPECT_EQ(simulated->find("rows")->items().size(), 2u);
  EXPECT_NEAR(simulated->find("end")->as_number(), 3e9, 1);  // nanoseconds
}

// Two stages on machines whose clocks are an hour apart: they leave the norm together.
TEST(LastStep, ClocksThatDifferAgreeWhereTheNormEnds) {
  const std::vector<StepProgram>& programs = grid().plan.step_programs;
  ASSERT_EQ(programs.size(), 2u);
  std::vector<std::vector<InstructionTimes>> truth;
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const auto& list = programs[stage].instructions;
    std::vector<InstructionTimes>& times = truth.emplace_back(list.size());
    const auto norm = std::ranges::find(list, InstructionKind::kGradNorm, &Instruction::kind) - list.begin();
    ASSERT_LT(norm, std::ssize(list));
    for (std::int64_t at = 0; at < std::ssize(list); ++at) {  // the norm ends at 0, the second stage begins later
      times[static_cast<std::size_t>(at)].start = static_cast<double>(at - norm) - 1;
      times[static_cast<std::size_t>(at)].end = static_cast<double>(at - norm);
    }
  }
  const double begin = std::min(truth[0].front().start, truth[1].front().start);
  const auto on_one_clock = [&](double apart) {
    std::vector<std::vector<InstructionTimes>> step = truth;
    for (InstructionTimes& t : step[1]) t.start += apart, t.end += apart;
    put_on_one_clock(programs, step);
    return step;
  };
  for (const double apart : {0.0, 3600.0, -3600.0}) {
    const auto step = on_one_clock(apart);
    for (std::size_t stage = 0; stage < 2; ++stage)
      for (std::size_t at = 0; at < step[stage].size(); ++at) {
        EXPECT_NEAR(step[stage][at].start, truth[stage][at].start - begin, 1e-6) << apart;
        EXPECT_NEAR(step[stage][at].end, truth[stage][at].end - begin, 1e-6) << apart;
      }
  }
  // Half a step apart may be what ranks of one machine do: it is shown as it was.
  const auto near = on_one_clock(2);
  EXPECT_NEAR(near[1].back().end - near[0].back().end, truth[1].back().end - truth[0].back().end + 2, 1e-9);
}

TEST(ResidentMemory, IsWhatTheKernelSays) {
  const std::string path = ::testing::TempDir() + "status";
  write_file(path,
             "Name:\ttrident\nVmRSS:\t  900 kB\nRssAnon:\t     700 kB\nRssFile:\t 150 kB\nRssShmem:\t    50 kB\nThreads:\t3\n");
  const auto memory = resident_memory(path);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->own, 700 * 1024);
  EXPECT_EQ(memory->files, 150 * 1024);
  EXPECT_EQ(memory->shared, 50 * 1024);
  write_file(path, "RssAnon:\t     700 kB\n");
  EXPECT_FALSE(resident_memory(path).has_value());
  EXPECT_FALSE(resident_memory(path + "-none").has_value());
  const std::int64_t before = resident_memory()->own;
  const std::vector<char> touched(64 << 20, 'x');
  EXPECT_GT(resident_memory()->own - before, 60 << 20) << touched.back();
}

TEST(RunPrices, GpusHaveTheProfileOfTheirKind) {
  EXPECT_EQ(profile_of_gpu("NVIDIA H100 80GB HBM3"), "H100-SXM5-80GB");
  EXPECT_EQ(profile_of_gpu("NVIDIA H100 PCIe"), "");
  EXPECT_EQ(profile_of_gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), "");
  EXPECT_EQ(profile_of_gpu("NVIDIA A100-SXM4-40GB"), "A100-SXM4-40GB");
  EXPECT_EQ(profile_of_gpu("NVIDIA GB200"), "GB200");
  EXPECT_EQ(profile_of_gpu("NVIDIA H200"), "H200-SXM-141GB");
  EXPECT_EQ(profile_of_gpu("Tesla T4"), "");
  const RunInputs inputs = grid();
  const auto prices = [&](std::vector<std::string> gpus) {
    return prices_of(inputs.plan, {DeviceKind::kCuda, std::move(gpus), 8, 8});
  };
  EXPECT_NE(prices({"NVIDIA H100 80GB HBM3"}).prices, nullptr);
  EXPECT_EQ(prices({"Tesla T4"}).prices, nullptr);
  expect_parts(prices({"Tesla T4"}).why_not, {"no profile of Tesla T4"});
  expect_parts(prices({"NVIDIA H200", "Tesla T4"}).why_not, {"not of one kind"});
}

}  // namespace
}  // namespace trident
