// TensorBoard event files: bytes against known records, and what readers get out of them: ours, and TensorBoard's own where there
// is one.
#include "train/log/tensorboard_writer.h"

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
#include "train/log/text_sample.h"

namespace trident {
namespace {

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
