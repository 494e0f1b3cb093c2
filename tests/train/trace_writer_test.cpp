// The trace file from made-up slices: times of other clocks, arrows, and the exact text.
#include "train/log/trace_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "core/check.h"
#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/train/event_file.h"
#include "tests/train/trace_file.h"
#include "train/log/tensorboard_writer.h"
#include "train/log/text_sample.h"

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

// TensorBoard event files: bytes against known records, and what readers get out of them: ours, and TensorBoard's own where there
// is one.

using testing::event_files;
using testing::read_event_file;
using testing::ReadEvent;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

TEST(EventRecord, ChecksumsOfKnownBytes) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(EventRecord, KnownBytes) {
  EXPECT_EQ(hex(framed(version_event(1.0))),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  const Scalar loss{"loss", 2.5};
  EXPECT_EQ(hex(framed(scalars_event(2.0, 7, {&loss, 1}))),
            "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f73731500002040c2dfec60");
  EXPECT_EQ(hex(start_event(2.0, 300)), "090000000000000040" "10ac02" "3a020801");
  // As TensorBoard 2.21's text_pb() has it, with the data class that its readers add.
  EXPECT_EQ(hex(text_event(2.0, 7, "samples/0", "Once `x`")),
            "09000000000000004010072a2d0a2b0a0973616d706c65732f304212080712041202080142084f6e6365206078604a0a0a060a0474657874"
            "2002");
}

TEST(TextSample, IsOneLineAndMarkdownThatNothingInItCanLeave) {
  TextSample sample;
  sample.prompt_ids = {1, 2}, sample.ids = {3, 4, 5};
  sample.end = "end", sample.seed = 7;
  const TextSample without_text = sample;
  sample.prompt = "a `` b", sample.text = "\n# no ``` heading\n";
  EXPECT_EQ(to_json_line(3, sample),
            R"({"step":3,"prompt":"a `` b","prompt_ids":[1,2],"text":"\n# no ``` heading\n","ids":[3,4,5],"tokens":3,"end":"end",)"
            R"("temperature":1.0,"seed":7})");
  EXPECT_EQ(to_markdown(sample), "```\na `` b\n```\n\ncontinues:\n\n````\n\n# no ``` heading\n\n````");
  EXPECT_EQ(to_json_line(3, without_text),
            R"({"step":3,"prompt":null,"prompt_ids":[1,2],"text":null,"ids":[3,4,5],"tokens":3,"end":"end","temperature":1.0,)"
            R"("seed":7})");
  EXPECT_EQ(to_markdown(without_text), "```\n1 2\n```\n\ncontinues:\n\n```\n3 4 5\n```");
}

TEST(EventFile, ReadBack) {
  const TemporaryFolder folder;
  const std::array<Scalar, 2> first{{{"train/loss", 9.5}, {"perf/mfu", std::nan("")}}},
      second{{{"train/loss", 8.25}, {"train/lr", 3e-4}}};
  const std::string markdown(1000, 'x');
  {
    TensorBoardWriter writer(folder.path(), 5, markdown);
    EXPECT_TRUE(event_files(folder.path()).empty()) << "who has nothing to say leaves no file";
    writer.scalars(6, first);
    EXPECT_EQ(read_event_file(writer.path()).size(), 4u) << "a reader sees every event before the file is closed";
    writer.scalars(std::int64_t{1} << 40, second);
  }
  const std::vector<std::string> files = event_files(folder.path());
  ASSERT_EQ(files.size(), 1u);
  const std::vector<ReadEvent> events = read_event_file(files[0]);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(events[1].session_start);
  EXPECT_EQ(events[1].step, 5);
  EXPECT_EQ(events[2].texts.at("config"), markdown);
  EXPECT_EQ(events[3].step, 6);
  EXPECT_EQ(events[3].scalars.at("train/loss"), 9.5f);
  EXPECT_TRUE(std::isnan(events[3].scalars.at("perf/mfu")));
  EXPECT_EQ(events[4].step, std::int64_t{1} << 40);
  EXPECT_EQ(events[4].scalars.at("train/lr"), 3e-4f);
  for (const ReadEvent& event : events) EXPECT_GT(event.wall_seconds, 1.7e9);
}

TEST(EventFile, ASecondFileOfTheSameSecondHasAnotherName) {
  const TemporaryFolder folder;
  TensorBoardWriter a(folder.path(), 0), b(folder.path(), 0);
  a.scalars(1, {});
  b.scalars(1, {});
  EXPECT_NE(a.path(), b.path());
  EXPECT_EQ(event_files(folder.path()).size(), 2u);
}

TEST(EventFile, WhatCannotBeWrittenIsAStorageError) {
  const TemporaryFolder folder;
  const std::string text = error_of<StorageError>([&] { TensorBoardWriter(folder / "missing", 0).scalars(1, {}); });
  EXPECT_TRUE(text.starts_with("TensorBoard events: " + folder / "missing/events.out.tfevents.")) << text;
  expect_parts(text, {"set log.tensorboard = false"});
}

// A limit on file sizes stands for a full disk; readers still find whole records, also of what comes when there is room again.
TEST(EventFile, AFullDiskIsNamedAndKeepsWholeRecords) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path(), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string text;
  try {
    writer.text(0, "config", std::string(1000, 'x'));
  } catch (const StorageError& error) {
    text = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  expect_parts(text, {"cannot be written: File too large", "set log.tensorboard = false"});
  EXPECT_EQ(read_event_file(writer.path()).size(), 2u);
  writer.scalars(1, {});
  EXPECT_EQ(read_event_file(writer.path()).size(), 3u);
  EXPECT_EQ(event_files(folder.path()).size(), 1u);
}

// TensorBoard's own reader, where Python has the package: values, steps, the text, and that a file which starts over at step 3
// replaces what an earlier one said from there on.
TEST(EventFile, TensorBoardReadsIt) {
  if (std::system("python3 -c 'import tensorboard' 2>/dev/null") != 0) GTEST_SKIP() << "python3 has no package tensorboard";
  const TemporaryFolder folder;
  const auto write = [&](std::int64_t from, std::int64_t to, double loss) {
    TensorBoardWriter writer(folder.path(), from);
    writer.text(from, "config", "```\nrun\n```");
    for (std::int64_t step = from; step <= to; ++step) {
      const std::array<Scalar, 2> scalars{{{"train/loss", loss}, {"train/tokens", static_cast<double>(step) * 512}}};
      writer.scalars(step, scalars);
    }
  };
  write(1, 5, 2.5);
  write(3, 4, 1.5);
  std::ofstream(folder / "read.py") << R"(
import sys, logging
logging.disable(logging.CRITICAL)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in sorted(events.Tags()['scalars']):
  print(tag, [(e.step, e.value) for e in events.Scalars(tag)])
for tag in events.Tags()['tensors']:
  print(tag, events.SummaryMetadata(tag).plugin_data.plugin_name, events.Tensors(tag)[-1].tensor_proto.string_val)
)";
  const std::string command =
      fmt::format("python3 {} {} > {} 2> {}", folder / "read.py", folder.path(), folder / "out", folder / "err");
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(folder / "err");
  EXPECT_EQ(read_file(folder / "out"),
            "train/loss [(1, 2.5), (2, 2.5), (3, 1.5), (4, 1.5)]\n"
            "train/tokens [(1, 512.0), (2, 1024.0), (3, 1536.0), (4, 2048.0)]\n"
            "config text [b'```\\nrun\\n```']\n");
}

}  // namespace
}  // namespace trident
