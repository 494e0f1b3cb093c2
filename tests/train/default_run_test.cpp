// A run that nobody told when to save keeps its end, and the same command goes on from there; an evaluation of more text
// than there is takes all of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"
#include "tests/support/no_gpus.h"
#include "tests/support/train_hooks.h"
#include "train/launch/run_training.h"
#include "train/log/console.h"
#include "train/run/checkpoint_dir.h"

namespace trident::testing {
namespace {

using Texts = std::vector<std::string>;

class SavingAtTheEnd : public ::testing::Test {
 protected:
  SavingAtTheEnd() { write_dataset(folder_ / "text", counting_documents(1000, 61), 61); }

  struct Start {
    int code = 0;
    std::string said;  // with the error that ended it
  };
  Start start(const Texts& more = {}, const std::string& checkpoint = "") const {
    const std::string config = fmt::format(R"({{
      "run": {{"threads_per_rank": 1, "pin": false, "steps": 3, "dir": "{0}/run"}}, "device": "cpu",
      "model": {{"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16}},
      "batch": {{"global": 4, "micro": 1, "sequence": 8}}, "optimizer": {{"lr": 1e-3}},
      "data": {{"train": "{0}/text", "tokenizer": null}}, {1} "log": {{"tensorboard": false}} }})", folder_.path(), checkpoint);
    std::ostringstream out;
    LogSink sink(out);
    NoGpus no_gpus;
    Start made;
    try {
      run_training([&] { return parse_train_config(config, "test", more); },
                   {.console = out, .log = sink}, no_gpus, train_hooks());
    } catch (const Error& error) {
      made.code = static_cast<int>(error.code());
      out << "\nerror: " << error.what() << '\n';
    }
    made.said = out.str();
    return made;
  }
  Texts saved(const std::string& directory = "run/ckpt") const {
    Texts names;
    if (!folder_exists(folder_ / directory)) return names;
    for (const CheckpointEntry& entry : list_checkpoints(folder_ / directory)) names.push_back(entry.name);
    return names;
  }
  std::string last_line(const std::string& file) const {
    std::string last;
    std::istringstream in(file_exists(folder_ / file) ? read_file(folder_ / file) : "");
    for (std::string line; std::getline(in, line);) last = line;
    return last;
  }
  std::int64_t last_step(const std::string& file) const {
    const std::string line = last_line(file);
    return line.empty() ? -1 : parse_json(line, file).find("step")->as_integer();
  }
  std::int64_t newest() const {
    const auto steps = checkpoint_steps(folder_ / "run/ckpt");
    return steps.empty() ? -1 : steps.front();
  }
  TemporaryFolder folder_;
};

std::ptrdiff_t lines_with(const std::string& text, const std::string& part) {
  std::ptrdiff_t lines = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines += contains(line, part);
  return lines;
}

TEST_F(SavingAtTheEnd, TheLastStepIsKeptAndNothingIsTakenBefore) {
  for (const char* layout : {"parallel=1DP", "parallel=2DP x 2PP x 1TP"}) {
    const Start first = start({layout});
    EXPECT_EQ(first.code, 0) << first.said;
    EXPECT_EQ(saved(), Texts{checkpoint_name(3)}) << first.said;
    EXPECT_FALSE(contains(read_file(folder_ / "run/memory.json"), "staging"));
    EXPECT_FALSE(contains(read_file(folder_ / "run/timing.jsonl"), "save_ms"));
    EXPECT_FALSE(contains(first.said, "warning")) << first.said;
    std::filesystem::remove_all(folder_ / "run");
  }
}

TEST_F(SavingAtTheEnd, AFolderThatDoesNotDoIsSparedAndAFaultThatMayPassIsNot) {
  const auto refused = [](int error) {
    return [error] { throw StorageError("a folder named: No space left on device/probe: cannot be written", error); };
  };
  const auto unfit = [] { throw UnfitFolderError("checkpoint.dir = d: has no room; name another folder"); };
  EXPECT_EQ(fault_unless(false, [] {}), "");
  EXPECT_TRUE(contains(fault_unless(false, unfit), "has no room"));
  EXPECT_TRUE(contains(fault_unless(false, refused(ENOSPC)), "No space left"));
  for (const int error : {EIO, ESTALE, EACCES}) EXPECT_THROW(fault_unless(false, refused(error)), StorageError);
  EXPECT_THROW(fault_unless(true, unfit), ConfigError);
}

TEST_F(SavingAtTheEnd, WhatIsOverSaysBothWaysOnAndBothWork) {
  ASSERT_EQ(start().code, 0);
  const Start again = start();
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(lines_with(again.said, "there is nothing to train; --set run.steps=N"), 1) << again.said;
  EXPECT_EQ(lines_with(again.said, "--set run.overwrite=true begins anew"), 1) << again.said;
  const Start by_epochs = start({"run.epochs=0.0001"});
  EXPECT_EQ(lines_with(by_epochs.said, "there is nothing to train; --set run.epochs=N trains on to epoch N"), 1) << by_epochs.said;
  EXPECT_EQ(saved(), Texts{checkpoint_name(3)});

  const Start longer = start({"run.steps=5"});
  EXPECT_EQ(longer.code, 0);
  EXPECT_TRUE(contains(longer.said, "goes on from step 3\n")) << longer.said;
  EXPECT_EQ(newest(), 5);

  const Start unfinished = start({"run.steps=6", "run.overwrite=true"});
  EXPECT_TRUE(contains(unfinished.said, "goes on from step 5\n")) << "what is not over is not begun anew: " << unfinished.said;

  const Start anew = start({"run.steps=6", "run.overwrite=true"});
  EXPECT_EQ(anew.code, 0) << anew.said;
  EXPECT_TRUE(contains(anew.said, "this run begins at step 1")) << anew.said;
  EXPECT_EQ(saved(), (Texts{checkpoint_name(5) + ".aside-1", checkpoint_name(6), checkpoint_name(6) + ".aside-1"})) << anew.said;
  EXPECT_TRUE(file_exists(folder_ / "run/earlier-1/metrics.jsonl"));
}

// Whatever the folder has of another run, overwrite means it too.
TEST_F(SavingAtTheEnd, OverwriteSetsAnotherRunsCheckpointsAside) {
  struct Row {
    const char* change;
    Texts left;
  };
  const std::string three = checkpoint_name(3), aside = three + ".aside-1";
  for (const Row& row : {Row{"optimizer.lr=0.5", {three, aside}}, Row{"run.seed=9", {three, aside}},
                         Row{"checkpoint.content=weights", {three, aside}}, Row{"checkpoint.every=0", {aside}}}) {
    std::filesystem::remove_all(folder_ / "run");
    ASSERT_EQ(start(row.change == std::string("checkpoint.content=weights") ? Texts{row.change} : Texts{}).code, 0);
    const Start anew = start({row.change, "run.overwrite=true"});
    EXPECT_EQ(anew.code, 0) << anew.said;
    EXPECT_TRUE(contains(anew.said, "this run begins at step 1")) << row.change << anew.said;
    EXPECT_EQ(saved(), row.left) << row.change << anew.said;
  }
}

// The last step, its evaluation, and what of it the checkpoint knows, whatever the run can do with it later.
TEST_F(SavingAtTheEnd, TimeThatIsUp) {
  struct Row {
    const char* name;
    Texts settings;
    int code;
  };
  const std::string seldom = "checkpoint.every=1000000";
  for (const Row& row : {Row{"default", {}, 75}, Row{"end", {"checkpoint.every=end"}, 75}, Row{"never", {"checkpoint.every=0"}, 0},
                         Row{"a number", {seldom}, 75}, Row{"weights", {seldom, "checkpoint.content=weights"}, 0},
                         Row{"weights at the end", {"checkpoint.content=weights"}, 0},
                         Row{"resume never", {seldom, "checkpoint.resume=never"}, 0}}) {
    std::filesystem::remove_all(folder_ / "run");
    Texts settings{"run.steps=100000000", "run.max_minutes=0.002", "data.valid=" + (folder_ / "text"), "eval.every=100000000",
                   "eval.steps=1", "log.every=100000000"};
    settings.insert(settings.end(), row.settings.begin(), row.settings.end());
    const Start made = start(settings);
    EXPECT_EQ(made.code, row.code) << row.name << made.said;
    const bool saves = row.name != std::string("never");
    EXPECT_EQ(newest() > 0, saves) << row.name << made.said;
    EXPECT_GT(last_step("run/eval.jsonl"), 0) << row.name << made.said;
    if (!saves) continue;
    EXPECT_EQ(last_step("run/eval.jsonl"), newest()) << row.name;
    EXPECT_EQ(open_manifest(folder_ / ("run/ckpt/" + checkpoint_name(newest()))).state.last_eval, newest())
        << row.name << ": evaluated first, then saved";
  }
}

TEST_F(SavingAtTheEnd, TimeThatIsUpBeforeTheFirstStepIsNothingSaved) {
  for (const char* every : {"checkpoint.every=end", "checkpoint.every=2"}) {
    const Start made = start({every, "run.max_minutes=1e-9"});
    EXPECT_EQ(made.code, 75) << made.said;
    EXPECT_TRUE(contains(made.said, "run.max_minutes is over before the first step; the same command begins with it")) << made.said;
  }
}

TEST_F(SavingAtTheEnd, ASignalSavesAndTheSameCommandGoesOn) {
  std::thread asks([this] {
    while (last_line("run/metrics.jsonl").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(::getpid(), SIGUSR1);
  });
  const Start stopped = start({"run.steps=100000000", "eval.every=100000000", "eval.steps=100", "data.split=9,1"});
  asks.join();
  EXPECT_EQ(stopped.code, 75) << stopped.said;
  const std::int64_t at = newest();
  for (const std::string& part : {fmt::format("next:   the same command goes on from step {}\n", at),
                                  std::string("\nerror: stopped by SIGUSR1; all is saved\n")})
    EXPECT_TRUE(contains(stopped.said, part)) << part << stopped.said;
  const std::regex of_step_0("; validation loss [0-9.]+ nats per token, perplexity [0-9.]+ at step 0\n");
  EXPECT_TRUE(std::regex_search(stopped.said, of_step_0)) << stopped.said;
  const std::string metrics = read_file(folder_ / "run/metrics.jsonl");
  const JsonValue first = parse_json(metrics.substr(0, metrics.find('\n')), "metrics.jsonl");
  const double first_step = 1e-3 * first.find("step_ms")->as_number();
  EXPECT_TRUE(contains(stopped.said, "  0 % done  ETA " + clock_text(first_step * (100000000 - 1)) + '\n'))
      << "the evaluation before it comes once\n" << stopped.said;
  ASSERT_GT(at, 0);
  const Texts longer{fmt::format("run.steps={}", at + 1), "lr_schedule.decay_steps=100000000", "data.split=9,1"};
  EXPECT_TRUE(contains(start(longer).said, fmt::format("goes on from step {}\n", at)));
}

TEST_F(SavingAtTheEnd, NeverIsSaid) {
  for (const Texts& settings : {Texts{"checkpoint.every=0"}, Texts{"checkpoint.every=null"}, Texts{"checkpoint=null"}, Texts{}}) {
    const Start made = start(settings, settings.empty() ? R"("checkpoint": null,)" : "");
    EXPECT_EQ(made.code, 0);
    EXPECT_EQ(lines_with(made.said, "nothing of this run is saved: checkpoint.every is 0"), 1) << made.said;
    EXPECT_FALSE(is_there(folder_ / "run/ckpt"));
    std::filesystem::remove_all(folder_ / "run");
  }
}

TEST_F(SavingAtTheEnd, AFolderThatDoesNotDoCostsTheCheckpointWhereNobodyAskedForOne) {
  write_file(folder_ / "file", "");
  const std::string dir = "checkpoint.dir=" + (folder_ / "file/ckpt");
  const Start warned = start({dir});
  EXPECT_EQ(warned.code, 0) << warned.said;
  EXPECT_EQ(lines_with(warned.said, "warning: "), 2) << warned.said;
  for (const char* part : {"checkpoint.dir = ", "Not a directory", "nothing of this run is saved", "checkpoint.every=0",
                           "train again with a checkpoint.dir that takes the model: checkpoint.dir = ",
                           "warning: the model of step 3 is lost"})
    EXPECT_TRUE(contains(warned.said, part)) << warned.said;
  EXPECT_EQ(last_step("run/metrics.jsonl"), 3);
  for (const char* given : {"checkpoint.every=end", "checkpoint.every=2"}) {
    const Start refused = start({dir, given});
    EXPECT_EQ(refused.code, 64) << given << refused.said;
    EXPECT_TRUE(contains(refused.said, "error: checkpoint.dir = ")) << refused.said;
  }
}

// Whatever the batch and the layout, so that losses of several runs are of the same text.
TEST_F(SavingAtTheEnd, AnEvaluationOfMoreThanThereIsTakesEverySampleOnce) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i <= 17 * 8; ++i) tokens.push_back(i * i % 61);  // 17 samples
  write_dataset(folder_ / "valid", {tokens}, 61);
  const auto loss = [&](Texts settings) {
    std::filesystem::remove_all(folder_ / "run");
    settings.insert(settings.end(), {"run.steps=1", "data.valid=" + (folder_ / "valid"), "eval.every=1", "checkpoint.every=0"});
    const Start made = start(settings);
    EXPECT_EQ(made.code, 0) << made.said;
    const std::string lines = read_file(folder_ / "run/eval.jsonl");
    return parse_json(lines.substr(0, lines.find('\n')), "eval.jsonl").find("valid_loss")->as_number();
  };
  const double all = loss({"batch.global=1", "eval.steps=17"});
  EXPECT_GT(std::abs(loss({"eval.steps=4"}) - all), 1e-6) << "16 of them";
  for (const Texts& settings : {Texts{"batch.global=4", "eval.steps=5"}, {"batch.global=8", "eval.steps=400"},
                                {"batch.global=32"}, {"batch.global=8", "parallel=2DP x 2PP x 1TP"}})
    EXPECT_NEAR(loss(settings), all, 1e-12) << settings.front();
}

}  // namespace
}  // namespace trident::testing
