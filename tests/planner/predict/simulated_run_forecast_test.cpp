// Tests what a run says of itself before it starts, where its prices come from, and what of a step and of memory is measured at its
// end.
#include "planner/predict/simulated_run_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/available_memory.h"
#include "core/file_io.h"
#include "planner/predict/comparison.h"
#include "tests/support/error_text.h"
#include "tests/train/priced_run.h"

namespace trident {
namespace {

using testing::FakePrices;
using testing::grid;

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
  const std::vector<std::string> lines = forecast.compare(summary);  // into a folder that is not there
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
