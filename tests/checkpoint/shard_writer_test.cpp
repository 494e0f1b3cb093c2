#include "checkpoint/shard_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "checkpoint/box_reader.h"
#include "checkpoint/file_record.h"
#include "core/file_io.h"
#include "device/background_reads.h"
#include "device/no_allocation.h"
#include "tests/checkpoint/save_ranks.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/file_faults.h"

// Background reads of a device that tests pretend: its memory is the host's.
namespace trident::test {

// Every read is done when it is enqueued, by `read`.
class PromptReads final : public BackgroundReads {
 public:
  using Read = std::function<void(void* to, ConstTensorView from)>;
  static void copy(void* to, ConstTensorView from) { std::memcpy(to, from.data(), static_cast<std::size_t>(from.num_bytes())); }

  explicit PromptReads(Read read = copy) : read_(std::move(read)) {}
  Buffer allocate(std::int64_t bytes, const std::string& name) override { return allocate_host(bytes, name); }
  void begin() override {}
  void hold(std::size_t) override {}
  void read(void* to, ConstTensorView from) override { read_(to, from); }
  void mark(std::size_t) override {}
  void wait(std::size_t) override {}
  void wait_all() override {}

 private:
  Read read_;
};

// No read is done before somebody waits for it: the other thread, or the rank's stream.
class LateReads final : public BackgroundReads {
 public:
  Buffer allocate(std::int64_t bytes, const std::string& name) override { return allocate_host(bytes, name); }
  void begin() override {}
  void hold(std::size_t mark) override { wait(mark); }
  void read(void* to, ConstTensorView from) override {
    const std::lock_guard lock(mutex_);
    late_.emplace_back(to, from);
    ++enqueued_;
  }
  void mark(std::size_t mark) override {
    const std::lock_guard lock(mutex_);
    marks_[mark] = enqueued_;
  }
  void wait(std::size_t mark) override {
    const std::lock_guard lock(mutex_);
    do_until(marks_.at(mark));
  }
  void wait_all() override {
    const std::lock_guard lock(mutex_);
    do_until(enqueued_);
  }

 private:
  void do_until(std::int64_t end) {
    for (; done_ < end; ++done_) {
      PromptReads::copy(late_.front().first, late_.front().second);
      late_.pop_front();
    }
  }

  std::mutex mutex_;
  std::deque<std::pair<void*, ConstTensorView>> late_;
  std::map<std::size_t, std::int64_t> marks_;
  std::int64_t enqueued_ = 0, done_ = 0;
};

}  // namespace trident::test

namespace trident {
namespace {

// Keeps whoever passes until it is opened.
class Gate {
 public:
  // False where it is not opened in a minute.
  [[nodiscard]] bool pass() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [this] { return open_; });
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// One rank whose values a test sees as if they lay on a device.
class ShardWriting : public ::testing::Test {
 protected:
  ShardWriting() : rank_(std::move(test::all_ranks(model_, {})[0])) {
    rank_.allocate(DType::kBF16, 0);
    rank_.fill(test::random_values(1));
  }

  SavePlan device_plan() const { return on_device(test::plan_of(rank_, 0)); }
  static SavePlan on_device(SavePlan plan) {
    for (SaveCopy& copy : plan.copies) copy.from = {copy.from.data(), copy.from.dtype(), copy.from.shape(), MemoryKind::kDevice};
    return plan;
  }
  // Every byte of all files, through the hashes that the writer says.
  std::string data_of(const std::string& folder, const ShardWriter& writer) const { return data_of(folder, writer, model_); }
  static std::string data_of(const std::string& folder, const ShardWriter& writer, const ModelConfig& model) {
    std::string all;
    for (const SaveFile& file : writer.files()) {
      BoxReader reader(folder, manifest_file(file, test::tensors_of(model)));
      std::string data(static_cast<std::size_t>(reader.table().data_bytes()), '?');
      reader.read(0, std::as_writable_bytes(std::span(data)));
      all += data;
    }
    return all;
  }
  static std::int64_t open_files() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  }

  ModelConfig model_ = test::gpt2_config(77);
  test::LayoutRank rank_;
  TemporaryFolder folder_;
  int files_ = 0;
};

TEST_F(ShardWriting, ValuesOfADeviceAreThoseOfTheHost) {
  SavePlan host = test::plan_of(rank_, 0), device = device_plan();
  ShardWriter one(host, test::staging_for(host, test::Staging::kLeast));
  test::PromptReads reads;
  ShardWriter two(device, test::staging_for(device, test::Staging::kLeast), {.reads = &reads});
  one.start(folder_ / "one");
  two.start(folder_ / "two");
  test::wait_for(one);
  test::wait_for(two);
  EXPECT_EQ(one.error(), std::nullopt);
  EXPECT_EQ(two.error(), std::nullopt);
  EXPECT_EQ(data_of(folder_ / "one", one), data_of(folder_ / "two", two));
}

// A copy that begins after its unit's update was let through would store the next step's values.
TEST_F(ShardWriting, AnUpdateWaitsForItsUnitOnly) {
  Gate second_unit;
  const int first = rank_.units()[0];
  std::atomic<bool> changed = false, read_late = false;
  SavePlan plan = device_plan();
  const std::byte* const begin = plan.copies[0].from.data();
  std::size_t copies_of_first = 0;
  for (const SaveCopy& copy : plan.copies) copies_of_first += copy.unit == first;
  std::size_t read = 0;
  test::PromptReads reads([&](void* to, ConstTensorView from) {
    if (read++ == copies_of_first) {
      EXPECT_TRUE(second_unit.pass());
    }
    if (from.data() == begin && changed) read_late = true;
    test::PromptReads::copy(to, from);
  });
  ShardWriter writer(plan, test::staging_for(plan, test::Staging::kWhole), {.reads = &reads});
  writer.start(folder_ / "a");
  writer.before_update(first);  // returns although the next unit cannot be copied
  changed = true;
  EXPECT_TRUE(writer.busy());
  EXPECT_EQ(writer.error(), std::nullopt);
  second_unit.open();
  for (const int unit : rank_.units()) writer.before_update(unit);
  test::wait_for(writer);
  EXPECT_EQ(writer.error(), std::nullopt);
  EXPECT_FALSE(read_late);
  EXPECT_EQ(writer.before_update(first), 0);  // nothing in progress
  EXPECT_EQ(writer.before_update(12345), 0);  // no unit of this rank
}

// An update is let through when the reads of its unit are enqueued; the stream keeps it behind them. Transposed values, blocks of
// several units, units of several blocks, and staging memory that is used again.
TEST_F(ShardWriting, LateReadsOfADevice) {
  const ModelConfig model = test::gpt2_config(33'000);  // what the optimizer has are several blocks
  test::LayoutRank rank = std::move(test::all_ranks(model, {})[0]);
  rank.allocate(DType::kBF16, 0);
  const SavePlan host = test::plan_of(rank, 0), plan = on_device(host);
  const auto change = [&](int unit, std::uint64_t seed) {
    for (const SaveCopy& copy : plan.copies) {
      std::mt19937_64 random(seed++);
      if (copy.unit != unit) continue;
      for (std::int64_t at = 0; at < copy.bytes(); at += 2) {
        const auto value = static_cast<std::uint16_t>(random());
        std::memcpy(const_cast<std::byte*>(copy.from.data()) + at, &value, 2);
      }
    }
  };
  ASSERT_GT(ShardWriter::transposing_bytes(plan), 0);
  ASSERT_EQ(ShardWriter::transposing_bytes(host), 0);
  ASSERT_GT(ShardWriter::whole_staging(plan), 2 * ShardWriter::least_staging(plan));
  ShardWriter expected(host, test::staging_for(host, test::Staging::kWhole));
  for (const test::Staging staging : {test::Staging::kLeast, test::Staging::kBetween, test::Staging::kWhole}) {
    test::LateReads reads;
    ShardWriter writer(plan, test::staging_for(plan, staging), {.reads = &reads});
    for (const bool updates : {true, false, true}) {
      const std::string name = fmt::format("{}-{}", static_cast<int>(staging), files_++);
      SCOPED_TRACE(name);
      expected.start(folder_ / ("host-" + name));
      test::wait_for(expected);
      writer.start(folder_ / ("device-" + name));
      for (const int unit : rank.units()) {
        if (!updates) break;  // nothing comes after the run's last save
        writer.before_update(unit);
        change(unit, 1000 * static_cast<std::uint64_t>(files_));
      }
      test::wait_for(writer);
      ASSERT_EQ(writer.error(), std::nullopt);
      EXPECT_TRUE(data_of(folder_ / ("device-" + name), writer, model) == data_of(folder_ / ("host-" + name), expected, model));
    }
  }
}

// The device refuses a read: no checkpoint, nobody waits, and the next one is whole.
TEST_F(ShardWriting, AReadThatFails) {
  const SavePlan plan = device_plan();
  bool fails = true;
  std::size_t read = 0;
  test::PromptReads reads([&](void* to, ConstTensorView from) {
    if (read++ == plan.copies.size() / 2 && fails) throw InternalError("the copy failed");
    test::PromptReads::copy(to, from);
  });
  ShardWriter writer(plan, test::staging_for(plan, test::Staging::kWhole), {.reads = &reads});
  writer.start(folder_ / "a");
  for (const int unit : rank_.units()) EXPECT_LT(writer.before_update(unit), 20);
  test::wait_for(writer);
  EXPECT_EQ(writer.error(), "the copy failed");
  fails = false;
  writer.start(folder_ / "b");
  test::wait_for(writer);
  EXPECT_EQ(writer.error(), std::nullopt);
  EXPECT_GT(data_of(folder_ / "b", writer).size(), 1000u);
  EXPECT_THROW(ShardWriter(plan, test::staging_for(plan, test::Staging::kWhole)), InternalError);  // nobody reads the device
}

// The disk hangs before the first value was copied: the save is given up, once, and its values are not looked at any more.
TEST_F(ShardWriting, AHangingDiskIsWaitedForOnce) {
  SavePlan plan = device_plan();
  std::atomic<int> warnings = 0, reads = 0;
  test::PromptReads counted([&](void* to, ConstTensorView from) {
    ++reads;
    test::PromptReads::copy(to, from);
  });
  ShardWriterOptions options;
  options.reads = &counted;
  options.patience_seconds = 0.05;
  options.warn = [&](std::string_view line) { warnings += line.find("waits until its values are copied") != line.npos ? 1 : 0; };
  ShardWriter writer(plan, test::staging_for(plan, test::Staging::kWhole), options);
  for (const int call : {0, 3, 5}) {  // a folder, the first file, the second: some values were copied then
    SCOPED_TRACE(call);
    reads = warnings = 0;
    std::optional<FileFault> hang(std::in_place, Fault::kHang, call);
    writer.start(folder_ / fmt::format("hangs-{}", call));
    ASSERT_TRUE(hang->happens());
    const int last = rank_.units().back();
    const double waited = [&] {
      const NoAllocationScope step("a step");
      return writer.before_update(last);
    }();
    EXPECT_GE(waited, 0.05);
    EXPECT_LT(waited, 60);
    EXPECT_EQ(warnings, 1);
    const int read = reads;
    EXPECT_EQ(writer.before_update(last), 0);  // nor do later updates wait again
    EXPECT_EQ(writer.before_update(last), 0);
    EXPECT_EQ(read > 0, call == 5);
    EXPECT_TRUE(writer.busy());
    EXPECT_EQ(writer.error(), std::nullopt);
    hang.reset();
    test::wait_for(writer);
    EXPECT_EQ(reads, read);
    expect_parts(writer.error().value_or(""), {"hangs-", "was given up because its values could not be copied in time"});
  }
  options.patience_seconds = 30;
  ShardWriter fresh(plan, test::staging_for(plan, test::Staging::kWhole), options);
  fresh.start(folder_ / "good");
  test::wait_for(fresh);
  writer.start(folder_ / "again");
  test::wait_for(writer);
  EXPECT_EQ(writer.error(), std::nullopt);
  EXPECT_EQ(data_of(folder_ / "again", writer), data_of(folder_ / "good", fresh));
}

// A destructor does not write what nobody will commit: neither while values are copied nor behind.
TEST_F(ShardWriting, AWriterMayEndInTheMiddle) {
  SavePlan plan = test::plan_of(rank_, 0);
  const int first_write = 3 + 2 * static_cast<int>(plan.files.size());  // three folders; each file is made and reserved
  for (const int call : {3, first_write}) {
    SCOPED_TRACE(call);
    const std::string folder = folder_ / fmt::format("ends-{}", call);
    std::optional<FileFault> hang(std::in_place, Fault::kHang, call);
    Gate ends;
    ShardWriterOptions options;
    options.hang_seconds = 0.01;
    options.warn = [&](std::string_view) { ends.open(); };  // the destructor, once it has given the save up
    auto writer = std::make_unique<ShardWriter>(plan, test::staging_for(plan, test::Staging::kWhole), options);
    writer->start(folder);
    ASSERT_TRUE(hang->happens());
    std::thread end([&] { writer.reset(); });
    EXPECT_TRUE(ends.pass());
    hang.reset();
    end.join();
    // No file was finished: their tables are missing.
    for (const SaveFile& file : plan.files) {
      if (!file_exists(folder + "/" + file.path)) continue;
      EXPECT_EQ(read_file(folder + "/" + file.path).substr(0, 8), std::string(8, '\0'));
    }
  }
}

// Its memory is what the disk has not taken yet: nobody may go on before that, but whoever waits is told for what.
TEST_F(ShardWriting, AnEndThatTheDiskHoldsUpIsNamed) {
  SavePlan plan = test::plan_of(rank_, 0);
  Gate named;
  std::string warned;
  ShardWriterOptions options;
  options.hang_seconds = 0.01;
  options.warn = [&](std::string_view line) {
    warned += line;
    named.open();
  };
  std::optional<FileFault> hang(std::in_place, Fault::kHangBlocks, 0);
  auto writer = std::make_unique<ShardWriter>(plan, test::staging_for(plan, test::Staging::kWhole), options);
  writer->start(folder_ / "hangs");
  ASSERT_TRUE(hang->happens());
  std::thread end([&] { writer.reset(); });
  EXPECT_TRUE(named.pass());
  for (const char* part : {"the end waits for the disk, which has been writing ", "hangs/", ".safetensors for "})
    EXPECT_NE(warned.find(part), std::string::npos) << part << " in " << warned;
  hang.reset();
  end.join();
}

// A save that fails keeps no file open: the disk has the space back when the folder is removed.
TEST_F(ShardWriting, AFailedSaveKeepsNoFileOpen) {
  SavePlan plan = test::plan_of(rank_, 0);
  ShardWriter writer(plan, test::staging_for(plan, test::Staging::kWhole));
  const std::int64_t before = open_files();
  std::optional<FileFault> fault(std::in_place, Fault::kErrorsFrom, 8, ENOSPC);
  writer.start(folder_ / "a");
  test::wait_for(writer);
  fault.reset();
  ASSERT_TRUE(writer.error().has_value());
  EXPECT_NE(writer.error()->find("No space left on device; free some space"), std::string::npos) << *writer.error();
  EXPECT_EQ(open_files(), before);
}

TEST_F(ShardWriting, ATaskBehindItReportsItsError) {
  SavePlan plan = test::plan_of(rank_, 0);
  ShardWriter writer(plan, test::staging_for(plan, test::Staging::kWhole));
  writer.run([] { throw StorageError("the commit failed"); });
  test::wait_for(writer);
  EXPECT_EQ(writer.error(), "the commit failed");
  writer.run([] {});
  test::wait_for(writer);
  EXPECT_EQ(writer.error(), std::nullopt);
  Gate gate;
  writer.run([&] { EXPECT_TRUE(gate.pass()); });
  EXPECT_TRUE(writer.busy());
  EXPECT_THROW(writer.start(folder_ / "b"), InternalError);
  EXPECT_EQ(writer.before_update(rank_.units()[0]), 0);  // a task reads no values
  gate.open();
  test::wait_for(writer);
}

// A rank that replicas leave nothing to.
TEST_F(ShardWriting, ARankMayHaveNothingToWrite) {
  SavePlan plan = make_save_plan({}, {}, test::state_names(), {}, CheckpointContent::kAll, 0);
  ShardWriter writer(plan, allocate_host(ShardWriter::least_staging(plan), "nothing"));
  writer.start(folder_ / "a");
  test::wait_for(writer);
  EXPECT_EQ(writer.error(), std::nullopt);
  EXPECT_TRUE(writer.files().empty());
}

}  // namespace
}  // namespace trident
