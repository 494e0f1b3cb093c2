// A data set is replaced as a whole, wherever the command that does it ends.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>

#include "data/dataset_files.h"
#include "data/dataset_record.h"
#include "data/indexed_dataset_writer.h"
#include "tests/support/error_text.h"
#include "tests/support/file_faults.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

using Files = std::map<std::string, std::string>;  // name -> content

constexpr int kManyCalls = 200;

Files files_of(const TemporaryFolder& folder) {
  Files files;
  for (const std::string& name : folder.names()) files[name] = read_file(folder / name);
  return files;
}

void put_files(const TemporaryFolder& folder, const Files& files) {
  for (const auto& [name, content] : files) write_file(folder / name, content);
}

constexpr std::array<std::uint8_t, 3> kCounts{1, 0, 1};  // of tokens of a document, where there is a mask

std::span<const std::uint8_t> counts_of(std::size_t tokens, WithMask with_mask) {
  return std::span(kCounts).first(with_mask == WithMask::kYes ? tokens : 0);
}

void write_old(const std::string& prefix, WithMask with_mask = WithMask::kNo) {
  IndexedDatasetWriter writer(prefix, 100, Overwrite::kNo, with_mask);
  writer.add_document(std::vector<std::int32_t>{1, 2, 3}, counts_of(3, with_mask));
  writer.add_document(std::vector<std::int32_t>{4}, counts_of(1, with_mask));
  writer.finish({});
}

// Files as large as the old ones, with documents that end elsewhere: .bin of one and .idx of the other pass for a pair.
void write_new(const std::string& prefix, WithMask with_mask) {
  IndexedDatasetWriter writer(prefix, 100, Overwrite::kYes, with_mask);
  writer.add_document(std::vector<std::int32_t>{5}, counts_of(1, with_mask));
  writer.add_document(std::vector<std::int32_t>{6, 7, 8}, counts_of(3, with_mask));
  writer.finish({});
}

// The refusal of a prefix, and "" where its files are a data set or none are there.
std::string refusal(const std::string& prefix) {
  try {
    refuse_half_way(prefix);
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

std::string command_in(const std::string& message) {
  const std::size_t at = std::min(message.find(": mv -f "), message.find(": rm -f "));
  EXPECT_NE(at, std::string::npos) << message;
  return at == std::string::npos ? "false" : message.substr(at + 2);
}

// With and without a mask in the new data set.
class DatasetCommit : public ::testing::TestWithParam<WithMask> {
 protected:
  static constexpr const char* kName = "it's text";  // shells must be told where the name ends

  DatasetCommit() {
    const auto files_by = [](auto&& write) {
      const TemporaryFolder folder;
      write(folder / kName);
      return files_of(folder);
    };
    old_ = files_by([](const std::string& prefix) { write_old(prefix); });
    masked_old_ = files_by([](const std::string& prefix) { write_old(prefix, WithMask::kYes); });
    new_ = files_by([](const std::string& prefix) { write_new(prefix, GetParam()); });
    EXPECT_EQ(old_.size(), 3u);
    EXPECT_EQ(masked_old_.size(), 4u);
    EXPECT_EQ(new_.size(), GetParam() == WithMask::kYes ? 4u : 3u);
    for (const auto& [name, content] : old_) {
      EXPECT_NE(content, new_[name]) << name;
      EXPECT_TRUE(content.size() == new_[name].size() || name.ends_with(".json")) << name;
    }
  }

  // One of these is there before: all of a data set of ours, one with a mask, one without a record, none, or a .bin alone.
  std::vector<Files> beginnings() const {
    Files bare = old_, bin;
    bare.erase(std::string(kName) + ".trident.json");
    bin[std::string(kName) + ".bin"] = "something else";
    return {old_, masked_old_, bare, Files{}, bin};
  }

  // Follows a refusal's advice, interrupted after every one of its steps, until nothing is refused.
  static void repair(const std::string& prefix) {
    std::string message = refusal(prefix);
    for (int i = 0; i < 6 && !message.empty(); ++i) {
      const std::string command = command_in(message);
      const std::string first = command.substr(0, command.find(" && "));
      ASSERT_EQ(std::system(first.c_str()), 0) << first;
      message = refusal(prefix);
    }
    EXPECT_EQ(message, "");
  }

  // Without what an ended process leaves under names that nobody looks at.
  static Files known_files_of(const TemporaryFolder& folder) {
    Files files = files_of(folder);
    std::erase_if(files, [](const auto& item) {
      return item.first.find(".tmp.") != std::string::npos || item.first.ends_with(".lock");
    });
    return files;
  }

  void expect_next_command_succeeds(const TemporaryFolder& folder) {
    write_new(folder / kName, GetParam());
    EXPECT_EQ(files_of(folder), new_);  // and nothing beside them
  }

  Files old_, masked_old_, new_;
};

TEST_P(DatasetCommit, AKillAtAnyCallLeavesOneOfTheTwo) {
  for (const Files& before : beginnings()) {
    bool finished = false;
    int refused = 0;
    for (int call = 0; call < kManyCalls && !finished; ++call) {
      SCOPED_TRACE(fmt::format("{} files before, killed at call {}", before.size(), call));
      const TemporaryFolder folder;
      const std::string prefix = folder / kName;
      put_files(folder, before);
      const pid_t child = ::fork();
      if (child == 0) {
        const FileFault fault(Fault::kKill, call);
        write_new(prefix, GetParam());
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      finished = WIFEXITED(status);
      ASSERT_TRUE(finished ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL) << status;
      const std::string message = refusal(prefix);
      if (!message.empty()) {
        ++refused;
        expect_error<DataError>([&] { IndexedDataset{prefix}; }, {message});
        expect_error<DataError>([&] { write_new(prefix, GetParam()); }, {message});
        const Files half_way = known_files_of(folder);
        EXPECT_EQ(std::system(command_in(message).c_str()), 0);
        EXPECT_EQ(known_files_of(folder), before);
        std::filesystem::remove_all(folder.path());
        std::filesystem::create_directory(folder.path());
        put_files(folder, half_way);
        repair(prefix);
        EXPECT_EQ(known_files_of(folder), before);
      } else {
        Files found = known_files_of(folder);
        std::erase_if(found, [](const auto& item) { return item.first.ends_with(".before-overwrite"); });
        EXPECT_TRUE(found == before || found == new_);
        if (found.size() > 1) {
          EXPECT_NO_THROW(IndexedDataset{prefix});
          EXPECT_EQ(read_record(prefix).has_value(), found.contains(kName + std::string(".trident.json")));
        }
      }
      expect_next_command_succeeds(folder);
    }
    EXPECT_TRUE(finished);
    EXPECT_GE(refused, before.size() > 1 ? 6 : 2);  // between the first rename and the last
  }
}

TEST_P(DatasetCommit, AnErrorAtAnyCallLeavesAWholeDataSet) {
  for (const Files& before : beginnings()) {
    int old_kept = 0, silent = 0;
    bool reached = true;
    for (int call = 0; reached && call < kManyCalls; ++call) {
      SCOPED_TRACE(fmt::format("{} files before, error at call {}", before.size(), call));
      const TemporaryFolder folder;
      put_files(folder, before);
      bool failed = false;
      {
        const FileFault fault(Fault::kError, call);
        try {
          write_new(folder / kName, GetParam());
        } catch (const Error& error) {
          failed = true;
          expect_parts(error.what(), {"; "});  // a remedy
        }
        reached = fault.happened();
      }
      EXPECT_EQ(refusal(folder / kName), "");
      Files found = known_files_of(folder);
      std::erase_if(found, [](const auto& item) { return item.first.ends_with(".before-overwrite"); });
      if (failed) EXPECT_TRUE(found == before || found == new_);
      else EXPECT_EQ(found, new_);
      old_kept += failed && found == before;
      silent += reached && !failed;
      expect_next_command_succeeds(folder);
    }
    EXPECT_FALSE(reached);
    EXPECT_GE(old_kept, 10);
    EXPECT_LE(silent, 7);  // calls whose failure changes nothing: looking for temporaries, removing locks and what is old
  }
}

// The disk goes away altogether: then the error itself says how to go back.
TEST_P(DatasetCommit, WhatCannotBeUndoneIsSaid) {
  for (const Files& before : beginnings()) {
    int said = 0;
    bool reached = true;
    for (int call = 0; reached && call < kManyCalls; ++call) {
      SCOPED_TRACE(fmt::format("{} files before, errors from call {}", before.size(), call));
      const TemporaryFolder folder;
      put_files(folder, before);
      std::string message;
      {
        const FileFault fault(Fault::kErrorsFrom, call);
        try {
          write_new(folder / kName, GetParam());
        } catch (const Error& error) {
          message = error.what();
        }
        reached = fault.happened();
      }
      if (refusal(folder / kName).empty()) continue;
      ++said;
      expect_parts(message, {"restore the old files: "});
      EXPECT_EQ(std::system(command_in(message).c_str()), 0);
      EXPECT_EQ(known_files_of(folder), before);
    }
    EXPECT_FALSE(reached);
    EXPECT_GE(said, 2);
  }
}

TEST_P(DatasetCommit, NothingIsReplacedUnasked) {
  const TemporaryFolder folder;
  const std::string prefix = folder / kName;
  put_files(folder, old_);
  expect_error<ConfigError>([&] { write_old(prefix); }, {prefix + ".bin and " + prefix + ".idx are there", "--overwrite"});
  EXPECT_EQ(files_of(folder), old_);
  remove_file(prefix + ".idx");
  remove_file(prefix + ".trident.json");
  expect_error<ConfigError>([&] { write_old(prefix); }, {prefix + ".bin is there", "--overwrite"});
  rename_file(prefix + ".bin", prefix + ".idx");
  expect_error<ConfigError>([&] { write_new(prefix, GetParam()); },
                            {prefix + ".idx is there without " + prefix + ".bin", "remove it"});
}

TEST_P(DatasetCommit, TwoCommandsOnOnePrefixExcludeEachOther) {
  const TemporaryFolder folder;
  const std::string prefix = folder / kName;
  {
    IndexedDatasetWriter first(prefix, 100, Overwrite::kNo, GetParam());
    expect_error<StorageError>([&] { write_old(prefix); }, {prefix + ".bin: another command is writing it", "wait"});
    EXPECT_EQ(folder.names().size(), new_.size());  // the first one's temporaries
    first.add_document(std::vector<std::int32_t>{1}, counts_of(1, GetParam()));
    put_files(folder, new_);  // by a command that did not see the first one
    expect_error<ConfigError>([&] { first.finish({}); }, {"are there", "--overwrite"});
  }
  EXPECT_EQ(files_of(folder), new_);
}

// While another command is between its renames, its way back is not for others to take.
TEST_P(DatasetCommit, AReplacementUnderWayIsNotCalledInterrupted) {
  const TemporaryFolder folder;
  const std::string prefix = folder / kName;
  put_files(folder, old_);
  IndexedDatasetWriter writer(prefix, 100, Overwrite::kYes);
  rename_file(prefix + ".idx", prefix + ".idx.before-overwrite");
  expect_error<DataError>([&] { IndexedDataset{prefix}; }, {"another command replaces it at this moment", "try again"});
}

// The .idx of one data set and the .bin of the other, which are as large, would pass for a pair.
TEST_P(DatasetCommit, APairThatIsReplacedWhileItIsOpenedIsRefused) {
  for (const char* moment : {".bin", ".idx"}) {
    const TemporaryFolder folder;
    const std::string prefix = folder / kName;
    put_files(folder, old_);
    {
      const BeforeOpen replacement(moment, [&] { write_new(prefix, GetParam()); });
      expect_error<DataError>([&] { IndexedDataset{prefix}; },
                              {prefix + ": another command replaced it while it was opened; start again"});
    }
    EXPECT_EQ(IndexedDataset(prefix).document_begin(1), 1) << "the new one";
  }
}

TEST_P(DatasetCommit, OnlyDeadTemporariesOfThePrefixAreRemoved) {
  const TemporaryFolder folder;
  const std::string prefix = folder / kName, ending = ".tmp.0123456789abcdef";
  const std::vector<std::string> others = {"other.bin" + ending, std::string(kName) + ".bin.tmp.123",
                                           std::string(kName) + ".bin.tmp.0123456789ABCDEF", std::string(kName) + ".txt" + ending,
                                           std::string(kName) + ".idx" + ending};
  for (const std::string& name : others) write_file(folder / name, "x");
  rename_file(folder / others.back(), folder / "target");
  std::filesystem::create_symlink(folder / "target", folder / others.back());  // ours are no links
  write_file(prefix + ".bin" + ending, "x");
  write_file(prefix + ".trident.json" + ending, "x");
  write_file(prefix + ".mask" + ending, "x");
  write_new(prefix, GetParam());
  std::vector<std::string> expected = others;
  expected.push_back("target");
  for (const auto& [name, content] : new_) expected.push_back(name);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(folder.names(), expected);
}

// A disk that did not answer has not said that a file is missing: nobody is told to remove the others, and no mask is left out.
TEST(DatasetLooks, ThatFailAreNoMissingFiles) {
  const TemporaryFolder folder;
  write_old(folder / "d", WithMask::kYes);
  for (const char* const name : {".idx", ".bin", ".mask", ".trident.json"}) {
    const FailingLook look(name);
    const std::string error = error_of<StorageError>([&] { read_record(folder / "d"), IndexedDataset(folder / "d"); });
    EXPECT_TRUE(contains(error, fmt::format("{}: cannot be looked at: Input/output error", name))) << error;
  }
  EXPECT_NO_THROW(IndexedDataset(folder / "d"));
}

INSTANTIATE_TEST_SUITE_P(Masks, DatasetCommit, ::testing::Values(WithMask::kNo, WithMask::kYes),
                         [](const auto& info) { return info.param == WithMask::kYes ? "With" : "Without"; });

}  // namespace
}  // namespace trident
