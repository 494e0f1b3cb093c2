// Tests what becomes of a run whose checkpoints cannot be written, read back, or read.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/file_faults.h"
#include "tests/support/layout_run.h"
#include "train/run/run_checkpoints.h"

namespace trident::testing {
namespace {

constexpr const char* kOnlyReads = "";  // instead of on_error: a run that saves nothing

// One rank that has begun a run which saves into a folder, between steps.
class Saver {
 public:
  Saver(RankTrainer& trainer, const std::string& folder, const std::string& on_error, std::optional<Resume> resume = {})
      : inputs_(inputs_of(trainer, folder, on_error, std::move(resume))),
        sink_(log_),
        logger_(sink_, trainer.context().rank()),
        log_errors_(OnError::kContinue, logger_),
        checkpoints_(inputs_, trainer, logger_, log_errors_) {
    state_.updates = state_.batches = 1;
  }
  void set_step(std::int64_t step) { state_.updates = state_.batches = step; }
  bool begin() { return checkpoints_.begin(say_).has_value(); }
  void save() {
    checkpoints_.save(state_, say_);
    checkpoints_.finish([this](const std::string& line) {
      said_ += line + "\n";
      if (when_committed && line.starts_with("checkpoint of step")) when_committed();
    });
  }
  std::int64_t committed() const { return checkpoints_.committed_step(); }
  std::string log() const { return log_.str(); }
  const std::string& said() const { return said_; }

  std::function<void()> when_committed = {};

 private:
  static RunInputs inputs_of(RankTrainer& trainer, const std::string& folder, const std::string& on_error,
                             std::optional<Resume> resume) {
    RunInputs inputs;
    inputs.plan = trainer.plan();
    inputs.plan.config.checkpoint.dir = folder;
    if (on_error != kOnlyReads) inputs.plan.config.checkpoint.every = {.steps = 1, .at_end = true};
    if (on_error != kOnlyReads) inputs.plan.config.checkpoint.on_error = parse_name<OnError>(on_error).value();
    inputs.plan.config.run.dir = folder + "/run";
    inputs.resume = std::move(resume);
    return inputs;
  }
  const RunInputs inputs_;
  std::ostringstream log_;
  LogSink sink_;
  const Logger logger_;
  LogErrors log_errors_;
  std::string said_;
  const Say say_ = [this](const std::string& line) { said_ += line + "\n"; };
  TrainingState state_;
  RunCheckpoints checkpoints_;
};

void on_one_rank(const std::function<void(RankTrainer&)>& body) {
  run_layout(tiny_llama_config(), {}, {.steps = 0, .before_steps = body});
}

const std::string kStep = "/" + checkpoint_name(1);

TEST(CheckpointFailures, WhatCannotBeWrittenIsSaidOrEndsTheRun) {
  on_one_rank([](RankTrainer& trainer) {
    const TemporaryFolder folder;
    Saver saver(trainer, folder.path(), "continue");
    saver.begin();
    {
      const FileFault fault(Fault::kErrorsFrom, 8);
      saver.save();
    }
    EXPECT_EQ(saver.committed(), -1);
    EXPECT_TRUE(contains(saver.said(), "no checkpoint of step 1: a rank could not write its part")) << saver.said();
    EXPECT_TRUE(contains(saver.log(), "failed here: ")) << saver.log();
  });
  on_one_rank([](RankTrainer& trainer) {
    const TemporaryFolder folder;
    Saver saver(trainer, folder.path(), "stop");
    saver.begin();
    const FileFault fault(Fault::kErrorsFrom, 8);
    EXPECT_TRUE(contains(error_of<StorageError>([&] { saver.save(); }), "the run ends because checkpoint.on_error is \"stop\""));
  });
}

// A disk that takes the bytes and gives others back.
TEST(CheckpointFailures, WhatCannotBeReadBackDoesNotCountAsSaved) {
  const std::pair<std::string, std::string> cases[] = {
      {"continue", "weights/w-00000-0.safetensors"}, {"stop", "weights/w-00000-0.safetensors"}, {"continue", "manifest.json"}};
  for (const auto& [on_error, file] : cases) {
    on_one_rank([&, on_error = on_error, file = file](RankTrainer& trainer) {
      const TemporaryFolder folder;
      Saver saver(trainer, folder.path(), on_error);
      saver.begin();
      const std::string path = fmt::format("{}{}/{}", folder.path(), kStep, file);
      saver.when_committed = [&] {
        std::string content = read_file(path);
        content[content.size() / 2] ^= 1;
        write_file(path, content);
      };
      const std::string error = on_error == "stop" ? error_of<StorageError>([&] { saver.save(); }) : (saver.save(), "");
      EXPECT_EQ(contains(error, "cannot be read back; earlier ones are kept; the run ends because"), on_error == "stop") << error;
      EXPECT_TRUE(contains(saver.said(), "the checkpoint of step 1 cannot be read back")) << saver.said();
      EXPECT_TRUE(contains(saver.log(), file)) << saver.log();
      EXPECT_EQ(saver.committed(), -1);
      EXPECT_TRUE(folder_exists(folder.path() + kStep));
    });
  }
}

TEST(CheckpointFailures, ADiskThatHangsInTheLastSaveIsNamed) {
  on_one_rank([](RankTrainer& trainer) {
    const TemporaryFolder folder;
    Saver saver(trainer, folder.path(), "continue");
    saver.begin();
    std::optional<FileFault> fault(std::in_place, Fault::kHang, 8);
    std::thread later([&] {
      EXPECT_TRUE(fault->happens());
      std::this_thread::sleep_for(std::chrono::seconds(16));  // it is said after 10, and again after 70
      fault.reset();
    });
    saver.save();
    later.join();
    for (const char* part : {"the run waits for the checkpoint of step 1: host ", " has been ", "a second signal ends the run"})
      EXPECT_TRUE(contains(saver.log(), part)) << part << " in " << saver.log();
    EXPECT_TRUE(std::regex_search(saver.log(), std::regex("\\.safetensors for [1-9][0-9] s"))) << saver.log();  // 10 or more
    EXPECT_EQ(saver.log().find("the run waits"), saver.log().rfind("the run waits"));
    EXPECT_EQ(saver.committed(), 1);
  });
}

// While alive this process can have so many more files open than it has: opening others fails (EMFILE) as a disk does that is away.
class FewFiles {
 public:
  explicit FewFiles(rlim_t more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(0);
    close(next);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next) + more;
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  rlimit before_{};
};

// A checkpoint of step 1 in `folder`.
void save_one(const std::string& folder) {
  on_one_rank([&](RankTrainer& trainer) {
    Saver saver(trainer, folder, "continue");
    saver.begin();
    saver.save();
    ASSERT_EQ(saver.committed(), 1);
  });
}

TEST(CheckpointFailures, AStorageThatComesBackCostsNothing) {
  const TemporaryFolder folder;
  save_one(folder.path());
  double back_after = 0;  // more than 2 s: a busy machine kept it away for longer than is waited
  const auto comes_back = [&back_after](std::optional<FewFiles>& limit, int milliseconds = 50) {
    return std::thread([&back_after, &limit, milliseconds, start = monotonic_seconds()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      limit.reset();
      back_after = monotonic_seconds() - start;
    });
  };
  const char* const busy = "this machine keeps a thread from its core for seconds, ten times in turn";
  bool was_missed = false;  // or it came back before it was read
  int tries = 0;
  for (int milliseconds = 50; !was_missed && milliseconds <= 800; milliseconds *= back_after > 2 ? 1 : 2) {
    if (++tries > 10) GTEST_SKIP() << busy;
    on_one_rank([&](RankTrainer& trainer) {
      Saver saver(trainer, folder.path(), kOnlyReads, Resume{{folder.path() + kStep, open_manifest(folder.path() + kStep)}});
      std::optional<FewFiles> limit(std::in_place, 0);
      std::thread later = comes_back(limit, milliseconds);
      const std::string error = error_of<Error>([&] { EXPECT_TRUE(saver.begin()); });
      later.join();
      if (back_after > 2) return;
      EXPECT_EQ(error, "no error");
      was_missed = contains(saver.log(), "is read again in 0.1 s");
      EXPECT_EQ(saver.committed(), 1);
    });
  }
  EXPECT_TRUE(was_missed);
  // And while the start looks for it.
  TrainConfig config;
  config.checkpoint.dir = folder.path();
  std::optional<Resume> found;
  std::string error;
  tries = 0;
  do {
    if (++tries > 10) GTEST_SKIP() << busy;
    std::optional<FewFiles> limit(std::in_place, 0);
    std::thread later = comes_back(limit);
    error = error_of<Error>([&] { found = find_resume(config); });
    later.join();
  } while (back_after > 2);
  EXPECT_EQ(error, "no error");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->notes, std::vector<std::string>{});
}

// Not "damaged" (65): a later start may read it.
TEST(CheckpointFailures, AStorageThatStaysAwayIsNoDamage) {
  const TemporaryFolder folder;
  save_one(folder.path());
  TrainConfig config;
  config.checkpoint.dir = folder.path();
  std::optional<std::string> error;
  {
    const FewFiles limit(1);  // the folder can be listed, no manifest opened
    error = error_of<StorageError>([&] { find_resume(config); });
  }
  EXPECT_TRUE(contains(*error, "manifest.json: cannot be opened: Too many open files")) << *error;
  EXPECT_TRUE(contains(*error, "no other checkpoint is valid")) << *error;
  // Nor where the values of the only one are to be read.
  const Resume only = find_resume(config).value();
  error = error_of<StorageError>([&] { find_older_weights(only, StorageError("w: Input/output error"), "--ckpt"); });
  EXPECT_TRUE(contains(*error, "w: Input/output error; no other checkpoint is valid: name another in --ckpt")) << *error;
}

// Every rank takes the older one, whatever its folder is called, and the rank that cannot read says why.
TEST(CheckpointFailures, WhatOneRankDoesNotSeeIsPassedOverByAll) {
  const TemporaryFolder place;
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(place.path());
  const std::string folder = "!64 runs";
  const auto on_ranks = [](const std::function<void(RankTrainer&)>& body) {
    run_layout(tiny_llama_config(), {"parallel=2DP x 1PP x 1TP"}, {.steps = 0, .before_steps = body});
  };
  on_ranks([&](RankTrainer& trainer) {
    Saver saver(trainer, folder, "continue");
    saver.begin();
    for (const std::int64_t step : {1, 2}) {
      saver.set_step(step);
      saver.save();
      EXPECT_EQ(saver.committed(), step);
    }
  });
  on_ranks([&](RankTrainer& trainer) {
    const bool sees = trainer.context().rank() == 0;
    const std::string newest = folder + "/" + checkpoint_name(2);
    Saver saver(trainer, folder, "continue",
                Resume{{sees ? newest : folder + "/elsewhere/step-00000002", open_manifest(newest)}});
    EXPECT_TRUE(saver.begin());
    EXPECT_EQ(saver.committed(), 1);
    EXPECT_EQ(contains(saver.log(), "elsewhere/step-00000002: cannot be opened"), !sees) << saver.log();
    EXPECT_EQ(contains(saver.log(), "looking for an older checkpoint"), !sees) << saver.log();
  });
  EXPECT_TRUE(folder_exists(folder + "/" + checkpoint_name(2) + ".aside-1"));
  std::filesystem::current_path(here);
}

}  // namespace
}  // namespace trident::testing
