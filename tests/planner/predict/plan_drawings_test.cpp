// Tests what a plan on a cluster draws: trace, timeline, page and memory over time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/number_text.h"
#include "planner/predict/cluster_report.h"
#include "planner/predict/plan_page.h"
#include "planner/predict/plan_timeline.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/train/plan_fixture.h"
#include "tests/train/trace_file.h"

namespace trident {
namespace {

using testing::demo;
using testing::h100;
using testing::layouts;
using testing::planned;
using testing::Settings;

TEST(PlanDrawings, TheTraceOfASimulatedStepIsATrace) {
  const TemporaryFolder folder;
  for (const Settings& settings : layouts()) {
    const ClusterForecast plan = planned(settings);
    write_plan_trace(folder / "t.json", plan.plan, plan.forecast);
    const nlohmann::json trace = nlohmann::json::parse(read_file(folder / "t.json"));
    const nlohmann::json schema = nlohmann::json::parse(read_file(TRIDENT_SOURCE_DIR "/docs/trace.schema.json"));
    EXPECT_EQ(testing::schema_problems(schema, trace), std::vector<std::string>{});
    EXPECT_EQ(testing::trace_problems(trace), std::vector<std::string>{});
    std::size_t sends = 0;
    for (const StepProgram& program : plan.plan.step_programs)
      sends += static_cast<std::size_t>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                                      [](const Instruction& i) { return i.is_send(); }));
    EXPECT_EQ(testing::count_arrows(trace), sends);
  }
}

std::size_t computes_of(const ClusterForecast& plan) {
  std::size_t n = 0;
  for (const StepProgram& program : plan.plan.step_programs)
    for (const Instruction& i : program.instructions) n += i.is_compute() ? 1 : 0;
  return n;
}

TEST(PlanDrawings, TheTimelineHasEverySpanWhereItIs) {
  for (const Settings& settings : layouts()) {
    const ClusterForecast plan = planned(settings);
    const Timeline whole = timeline_of(plan.plan, plan.forecast), merged = timeline_of(plan.plan, plan.forecast, 1);
    std::size_t computes = 0, actions = 0;
    double busy = 0, merged_end = 0;
    for (const TimelineRow& row : whole.rows) {
      double before[2] = {0, 0};
      for (const TimelineSpan& span : row.spans) {
        double& end = before[static_cast<std::size_t>(span.lane)];
        EXPECT_GE(span.start, end - 1e-12);
        end = span.end;
        computes += span.number != TimelineSpan::kNoNumber ? 1 : 0;
        busy = std::max(busy, span.end);
      }
    }
    for (const TimelineRow& row : merged.rows) {
      for (const TimelineSpan& span : row.spans) {
        actions += span.number != TimelineSpan::kNoNumber ? 1 : 0;
        merged_end = std::max(merged_end, span.end);
      }
    }
    EXPECT_EQ(computes, computes_of(plan));
    EXPECT_EQ(actions, 2u * static_cast<std::size_t>(plan.plan.num_micro_batches * plan.plan.config.parallel.virtual_stages) *
                           plan.plan.step_programs.size())
        << "a forward and a backward of each micro-batch and virtual stage";
    EXPECT_EQ(busy, merged_end);
    EXPECT_LE(busy, plan.seconds() * (1 + 1e-9));
  }
}

TEST(PlanDrawings, ThePageHasTheNumbersAndNoMarkupOfOthers) {
  const std::string name = "runs/<script>alert(1)</script>";
  const ClusterReport report = report_on(h100(), demo({"run.dir=" + name}), 0, 2e9);
  const std::string html = to_html(page_of(report));
  EXPECT_EQ(html.find("alert(1)</script>"), html.npos);
  expect_parts(html, {"Plan of runs/&lt;script&gt;alert(1)"});
  expect_parts(html, {seconds_text(report.plan.seconds()), std::string("2 billion tokens"), settings_text(report.advice.front()),
                      std::string(to_string(report.plan.limit.limit))});
  expect_parts(html, {"class=\"timeline\"", "class=\"chart\""});
}

// A chart of a long step loses none of its peaks.
TEST(PlanDrawings, AThinnedChartKeepsItsPeaks) {
  const ClusterReport report = report_on(h100(), demo({"batch.global=4096"}), 0, 0);
  const LinePlot plot = memory_over_time(report);
  ASSERT_EQ(plot.lines.size(), 4u);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    EXPECT_LE(plot.lines[stage].points.size(), 1210u);
    double most = 0;
    for (const PlotPoint& point : plot.lines[stage].points) most = std::max(most, point.y);
    EXPECT_NEAR(most, 1e-9 * static_cast<double>(report.plan.memory[stage].total()), 1e-9) << "the arena's blocks, all in use";
  }
}

}  // namespace
}  // namespace trident
