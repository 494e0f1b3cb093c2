// The trace file from made-up slices: times of other clocks, arrows, and the exact text.
#include "train/log/trace_writer.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/train/trace_file.h"

namespace trident {
namespace {

using nlohmann::json;
using testing::count_arrows;
using testing::slices_by_lane;
using testing::trace_problems;

// Two stages; micro-batch 0's activation goes from the first to the second.
TraceLayout two_stages() {
  TraceLayout layout{ProcessGrid(ParallelDegrees{.pipeline = 2}), std::vector<StepProgram>(2), 2, 2};
  layout.programs[0].instructions = {{.kind = InstructionKind::kForward, .unit = 3, .virtual_stage = 0, .micro_batch = 0},
                                     {.kind = InstructionKind::kSendActivation, .virtual_stage = 0, .micro_batch = 0, .peer = 1}};
  layout.programs[1].instructions = {
      {.kind = InstructionKind::kRecvActivation, .virtual_stage = 1, .micro_batch = 0, .peer = 0, .receive_slot = 0}};
  return layout;
}

TraceSlice slice(TraceLane lane, std::int32_t instruction, double start, double end) {
  TraceSlice s;
  s.lane = lane;
  s.instruction = instruction;
  s.start = start, s.end = end;
  s.step = 7;
  return s;
}

TEST(TraceWriter, LaysTheTimesOfOtherClocksBesideRankZeros) {
  const TemporaryFolder folder;
  const TraceSlice sender[] = {slice(TraceLane::kStep, TraceSlice::kStep, 100, 101), slice(TraceLane::kCompute, 0, 100, 100.25),
                               slice(TraceLane::kSendForward, 1, 100.25, 100.5)};
  const TraceSlice receiver[] = {slice(TraceLane::kRecvForward, 0, 5100, 5100.75)};  // its clock is 5000 s ahead
  {
    TraceWriter writer(folder / "t.json", two_stages(), {{0, 0}, {-5000, 2e-6}}, 99);
    writer.add(0, sender);
    writer.add(1, receiver);
    EXPECT_FALSE(file_exists(folder / "t.json")) << "a trace is whole or not there";
    writer.finish();
  }
  const json trace = json::parse(read_file(folder / "t.json"));
  EXPECT_EQ(trace["otherData"]["clock_error_us"], 2.0);
  EXPECT_TRUE(trace_problems(trace).empty());
  const auto lanes = slices_by_lane(trace);
  EXPECT_EQ(lanes.at({0, "compute"})[0]["ts"], 1e6);
  EXPECT_EQ(lanes.at({0, "compute"})[0]["dur"], 0.25e6);
  EXPECT_EQ(lanes.at({0, "compute"})[0]["name"], "forward u3 m0");
  EXPECT_EQ(lanes.at({0, "compute"})[0]["args"]["step"], 7);
  EXPECT_EQ(lanes.at({1, "receive forward"})[0]["ts"], 1e6);
  EXPECT_EQ(lanes.at({1, "receive forward"})[0]["name"], "recv_activation m0");
  EXPECT_EQ(count_arrows(trace), 1u);
}

TEST(TraceWriter, TheSameMessageOfAnotherAttemptIsAnotherArrow) {
  const TemporaryFolder folder;
  TraceWriter writer(folder / "t.json", two_stages(), {{}, {}}, 0);
  for (int attempt = 0; attempt < 2; ++attempt) {  // a skipped step keeps its number
    TraceSlice send = slice(TraceLane::kSendForward, 1, 2 * attempt, 2 * attempt + 1),
               receive = slice(TraceLane::kRecvForward, 0, 2 * attempt, 2 * attempt + 1);
    send.attempt = receive.attempt = attempt;
    writer.add(0, {&send, 1});
    writer.add(1, {&receive, 1});
  }
  writer.finish();
  const json trace = json::parse(read_file(folder / "t.json"));
  EXPECT_TRUE(trace_problems(trace).empty());
  EXPECT_EQ(count_arrows(trace), 2u);
}

TEST(TraceWriter, OneEventPerLine) {
  const TemporaryFolder folder;
  TraceWriter writer(folder / "t.json", two_stages(), {{}, {}}, 0);
  TraceSlice forward = slice(TraceLane::kCompute, 0, 0.001, 0.0015);
  forward.cpu = 0.0005f;
  writer.add(0, {&forward, 1});
  writer.finish();
  const std::string text = read_file(folder / "t.json");
  expect_parts(text,
               {"{\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":1000.000,\"dur\":500.000,\"name\":\"forward u3 m0\",\"cat\":\"forward\","
                "\"args\":{\"step\":7,\"instruction\":0,\"text\":\"F(u3,m0)\",\"cpu_us\":500.000,\"waited_us\":0.000}}\n]}\n"});
  EXPECT_TRUE(
      text.starts_with("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"clock_error_us\":0.000},\"traceEvents\":[\n{\"ph\":\"M\""));
}

}  // namespace
}  // namespace trident
