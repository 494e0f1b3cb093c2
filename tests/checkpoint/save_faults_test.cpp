// A save that is killed or fails at any of its calls of the file system: the folder has the old checkpoint, or both.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "checkpoint/box_reader.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/file_io.h"
#include "tests/checkpoint/save_ranks.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/file_faults.h"
#include "tests/support/sanitized.h"

namespace trident {
namespace {

constexpr int kManyCalls = 400;

// Runs `body` in a child process, which has threads of its own; its status.
template <class Body>
int in_child(Body body) {
  const bool failed = ::testing::Test::HasFailure();
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(::testing::Test::HasFailure() && !failed ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

bool succeeded(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

class SaveFaults : public ::testing::Test {
 protected:
  // Two ranks; the values of a step are its own.
  void save(std::int64_t step) const {
    std::vector<test::LayoutRank> ranks = test::all_ranks(model_, {.tensor = 2});
    for (test::LayoutRank& rank : ranks) {
      rank.allocate(DType::kBF16, 0);
      rank.fill(test::random_values(static_cast<std::uint64_t>(step)));
    }
    test::save_ranks(folder_.path(), step, model_, ranks, DType::kBF16);
  }

  void save_in_child(std::int64_t step) const {
    ASSERT_TRUE(succeeded(in_child([&] { save(step); })));
  }

  // Every block of a checkpoint.
  void expect_whole(std::int64_t step) const {
    const std::string path = folder_ / checkpoint_name(step);
    const Manifest manifest = open_manifest(path);
    EXPECT_EQ(manifest.state.updates, step);
    EXPECT_GE(manifest.files.size(), 4u);
    for (const ManifestFile& file : manifest.files) {
      BoxReader reader(path, file);
      std::vector<std::byte> data(static_cast<std::size_t>(reader.table().data_bytes()));
      reader.read(0, data);
    }
  }

  // A start would take these: checkpoints' own names, valid or not.
  std::vector<std::int64_t> own_names() const {
    std::vector<std::int64_t> steps;
    for (const CheckpointEntry& entry : list_checkpoints(folder_.path())) {
      if (!entry.parts.mark.empty()) continue;
      EXPECT_EQ(entry.health, CheckpointHealth::kValid) << entry.name << " " << entry.why;
      steps.push_back(entry.parts.step);
    }
    return steps;
  }

  // The old one is whole, the new one is too or not there, and nothing stays beside them.
  bool expect_old_or_both() const {
    const std::vector<std::int64_t> steps = own_names();
    const bool both = steps == std::vector<std::int64_t>{10, 20};
    EXPECT_TRUE(both || steps == std::vector<std::int64_t>{10}) << steps.size();
    for (const std::int64_t step : steps) expect_whole(step);
    remove_leftovers(folder_.path());
    EXPECT_EQ(folder_.names(), both ? std::vector({checkpoint_name(10), checkpoint_name(20)}) : std::vector({checkpoint_name(10)}));
    return both;
  }

  ModelConfig model_ = test::llama_config(40, 2, true);
  TemporaryFolder folder_;
};

TEST_F(SaveFaults, AKillAtAnyCallLosesNoCheckpoint) {
  save_in_child(10);
  bool finished = false;
  int without = 0, with = 0;
  for (int call = 0; call < kManyCalls && !finished; ++call) {
    SCOPED_TRACE(call);
    const int status = in_child([&] {
      const FileFault fault(Fault::kKill, call);
      save(20);
    });
    finished = WIFEXITED(status);
    ASSERT_TRUE(finished ? succeeded(status) : WTERMSIG(status) == SIGKILL) << status;
    const bool both = expect_old_or_both();
    EXPECT_TRUE(both || !finished);
    EXPECT_TRUE(both || with == 0);  // once committed, it stays
    ++(both ? with : without);
    std::filesystem::remove_all(folder_ / checkpoint_name(20));
  }
  EXPECT_TRUE(finished);
  EXPECT_GE(without, 40);  // 8 files of three calls and more
  EXPECT_GE(with, 2);      // killed after the rename, and not at all
}

// The last to know of a folder is the one that it lies in; and where one cannot be made, what was made of the path goes again.
TEST_F(SaveFaults, AFolderThatIsMadeIsOnTheDiskOrNotThere) {
  const auto why_not = [&](int call) {
    const FileFault fault(Fault::kError, call);
    return error_of<StorageError>([&] { EXPECT_EQ(create_lasting_folder(folder_ / "a/b/").size(), 2u); });
  };
  std::vector<std::string> refused;
  for (int call = 0; call < kManyCalls; ++call) {
    const std::string why = why_not(call);
    if (why == "no error") break;
    const bool none_made = why.find("the folder cannot be created") != std::string::npos;
    EXPECT_TRUE(!none_made || !is_there(folder_ / "a")) << why;
    std::filesystem::remove_all(folder_ / "a");
    refused.push_back(why);
  }
  ASSERT_TRUE(folder_exists(folder_ / "a/b"));
  for (const std::string& folder : {std::string(folder_.path()), folder_ / "a"}) {
    const auto names = [&](const std::string& text) { return text.starts_with(folder + ": cannot be flushed to the disk"); };
    EXPECT_EQ(std::ranges::count_if(refused, names), 1) << folder;
  }
  const FileFault fault(Fault::kErrorsFrom, 0);
  EXPECT_TRUE(create_lasting_folder(folder_ / "a/b").empty());  // nothing is asked of a disk that has it
}

TEST_F(SaveFaults, AKillWhileRemovingLosesNoCheckpoint) {
  bool finished = false;
  int call = 0;
  for (; call < kManyCalls && !finished; ++call) {
    SCOPED_TRACE(call);
    save_in_child(10);
    save_in_child(20);
    const int status = in_child([&] {
      const FileFault fault(Fault::kKill, call);
      remove_checkpoint_folder(folder_.path(), checkpoint_name(10));
    });
    finished = WIFEXITED(status);
    for (const std::int64_t step : own_names()) expect_whole(step);
    const std::vector<std::int64_t> steps = own_names();
    EXPECT_EQ(steps.back(), 20);
    EXPECT_EQ(steps.size(), call == 0 ? 2u : 1u);  // the rename is the first call
    remove_leftovers(folder_.path());
    EXPECT_EQ(folder_.names().size(), steps.size());
    std::filesystem::remove_all(folder_.path());
    std::filesystem::create_directory(folder_.path());
  }
  EXPECT_TRUE(finished);
  EXPECT_GE(call, 9);  // a rename, four files, three folders, and what follows them
}

struct Failure {
  const char* name;
  Fault fault;
  int error;
};
void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.name; }

class FailingSave : public SaveFaults, public ::testing::WithParamInterface<Failure> {};

TEST_P(FailingSave, AFailureOfAnyCallLosesNoCheckpoint) {
  const Failure failure = GetParam();
  save_in_child(10);
  bool reached = true;
  int failed = 0;
  constexpr int kEvery = test::kSanitized ? 3 : 1;
  for (int call = 0; reached && call < kManyCalls; call += kEvery) {
    SCOPED_TRACE(call);
    int report[2];
    ASSERT_EQ(::pipe(report), 0);
    const int status = in_child([&] {
      std::string line = "-";
      bool happened = false;
      {
        const FileFault fault(failure.fault, call, failure.error);
        try {
          save(20);
        } catch (const StorageError& error) {
          line = error.what();
        }
        happened = fault.happened();
      }
      line += happened ? "+" : ".";
      (void)!::write(report[1], line.data(), line.size());
      const bool is_there = own_names().back() == 20;
      EXPECT_FALSE(is_there && line.front() != '-' && failure.fault == Fault::kError) << "there in spite of: " << line;
      if (is_there) return;
      remove_leftovers(folder_.path());
      save(20);  // the next one works, in the same process
    });
    ::close(report[1]);
    std::string line(2000, '\0');
    line.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(report[0], line.data(), line.size()))));
    ::close(report[0]);
    ASSERT_TRUE(succeeded(status)) << status << " " << line;
    ASSERT_FALSE(line.empty());
    reached = line.back() == '+';
    line.pop_back();
    if (line != "-") {
      ++failed;
      const int error = failure.fault == Fault::kShortFrom ? ENOSPC : failure.error;
      expect_parts(line, {folder_.path(), std::strerror(error), "; "});
      // A call that a signal interrupted is made again where that is known to be safe: files are made, reserved, written and cut.
      for (const char* what : {" bytes ", "its size", "safetensors: cannot be created"})
        EXPECT_FALSE(error == EINTR && line.find(what) != line.npos) << line;
    }
    EXPECT_TRUE(expect_old_or_both());
    std::filesystem::remove_all(folder_ / checkpoint_name(20));
  }
  EXPECT_FALSE(reached);
  if (failure.fault == Fault::kShort) {
    EXPECT_EQ(failed, 0);  // the rest is written
  } else {
    EXPECT_GE(failed, (failure.error == EINTR ? 10 : 20) / kEvery);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FailingSave,
    ::testing::Values(Failure{"full_once", Fault::kError, ENOSPC}, Failure{"full_from_then_on", Fault::kErrorsFrom, ENOSPC},
                    Failure{"broken_once", Fault::kError, EIO}, Failure{"broken_from_then_on", Fault::kErrorsFrom, EIO},
                    Failure{"read_only_from_then_on", Fault::kErrorsFrom, EROFS}, Failure{"quota_once", Fault::kError, EDQUOT},
                    Failure{"interrupted_once", Fault::kError, EINTR}, Failure{"short_once", Fault::kShort, 0},
                    Failure{"short_from_then_on", Fault::kShortFrom, 0}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trident
