// Runs of the real program that begin with another's weights, and checkpoints that hold weights alone.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/background_program.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/app/program.h"

namespace trident {
namespace {

// Weights saved by data ranks in bf16 come as their fp32 masters into a pipeline. A learning
// rate of next to 0 shows them as they came.
TEST_F(Checkpoints, ARunBeginsWithTheWeightsOfAnother) {
  ASSERT_EQ(train({"precision.compute=bf16"}).exit_code, 0);
  const std::string from = place_ / "run/ckpt";
  const auto begin = [&](const std::string& run, const std::vector<std::string>& more) {
    return place_.train(plus(
        {"model.init_from=" + from, "parallel=1DP x 2PP x 1TP", "run.steps=1", "checkpoint.every=1", "run.dir=" + (place_ / run)},
        more));
  };
  const ProgramOutcome still = succeeded(begin("still", {"optimizer.lr=1e-30", "lr_schedule.type=constant"}));
  expect_parts(still.out, {"begins with the weights of " + from +
                           "/step-00000004 (model.init_from), step 4; optimizer, data and steps begin anew"});
  const ProgramOutcome diff = run_program({"ckpt", "diff", from + "/step-00000004", place_ / "still/ckpt/step-00000001"});
  EXPECT_EQ(diff.exit_code, 1) << diff.err;  // states of the optimizer, steps; no weights
  for (std::istringstream lines(diff.out); !lines.eof();) {
    std::string line;
    std::getline(lines, line);
    EXPECT_TRUE(line.empty() || line.starts_with("exp_avg") || line.starts_with("state: ")) << line;
  }
  expect_parts(diff.out, {"exp_avg_sq/"});
  // From position 0 of the data: the first loss is that of the first batch.
  EXPECT_EQ(place_.metrics("still").front().find("tokens")->as_integer(), 8 * 32);
  EXPECT_LT(place_.metrics("still").front().find("loss")->as_number(), place_.metrics().front().find("loss")->as_number());
  // A second start goes on from its own, and is not begun again.
  ASSERT_EQ(begin("moved", {}).exit_code, 0);
  const ProgramOutcome on = succeeded(begin("moved", {"run.steps=3"}));
  expect_parts(on.out, {"goes on from step 1\n"});
  EXPECT_EQ(on.out.find("begins with the weights"), std::string::npos) << on.out;
  EXPECT_EQ(place_.metrics("moved").size(), 3u);
}

TEST_F(FullCheckpoints, WeightsAloneAreEnoughToBeginWith) {
  ASSERT_EQ(train({"checkpoint.content=weights", "precision.compute=bf16"}).exit_code, 0);
  const ProgramOutcome outcome =
      succeeded(train({"model.init_from=" + (place_ / "run/ckpt/step-00000004"), "run.dir=" + (place_ / "other")}));
  expect_parts(outcome.out, {"step 4, which has them in bf16 only"});
}

TEST_F(Checkpoints, WeightsOfAnotherModelAreRefused) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string from = "model.init_from=" + (place_ / "run/ckpt"), other = "run.dir=" + (place_ / "other");
  const std::vector<std::string> before = place_.files();
  expect_one_line(train({from, other, "model.intermediate_size=96"}), 64,
                  {"model.init_from", "step-00000004", "mlp", "[96,32]", "[64,32]"});
  expect_one_line(train({from, other, "model.num_hidden_layers=5"}), 64, {"model.layers.4.", "is not there in the checkpoint"});
  expect_one_line(train({from, other, "model.num_hidden_layers=3"}), 64, {"model.layers.3.", "is not there in the model"});
  expect_one_line(train({from, other, "model.rope_theta=5000"}), 64,
                  {"model.rope_theta = 5000", "same shapes", "checkpoint.allow"});
  expect_one_line(train({"model.init_from=" + (place_ / "nothing"), other}), 65,
                  {"model.init_from", "no such folder (nothing is downloaded)"});
  create_folder(place_ / "hf");
  write_file(place_ / "hf/config.json", "{}");
  expect_one_line(train({"model.init_from=" + (place_ / "hf"), other}), 65, {"there is no checkpoint", "or a Hugging Face folder"});
  std::vector<std::string> after = place_.files();
  std::erase_if(after, [&](const std::string& path) { return path.starts_with(place_ / "hf"); });
  EXPECT_EQ(after, before);
  succeeded(train({from, other, "model.rope_theta=5000", "model.dropout=0.1", "checkpoint.allow=model"}));
}

TEST_F(FullCheckpoints, AnotherRunDirBesideASharedFolderOfThemIsLookedAt) {
  const std::string shared = "checkpoint.dir=" + (place_ / "shared");
  ASSERT_EQ(train({shared}).exit_code, 0);
  ASSERT_EQ(train({"run.dir=" + (place_ / "other"), "run.seed=7", "checkpoint.every=0"}).exit_code, 0);
  const std::vector<std::string> before = place_.files();
  const std::string metrics = read_file(place_ / "other/metrics.jsonl");
  expect_one_line(train({shared, "run.steps=6", "run.dir=" + (place_ / "other")}), 64,
                  {"run.dir = ", "of another run", "run.overwrite=true"});
  EXPECT_EQ(place_.files(), before);
  succeeded(train({shared, "run.steps=6", "run.dir=" + (place_ / "other"), "run.overwrite=true"}));
  EXPECT_EQ(read_file(place_ / "other/earlier-1/metrics.jsonl"), metrics);
  EXPECT_EQ(place_.metrics("other").size(), 2u);
  // Its own goes on.
  succeeded(train({shared, "run.steps=8", "run.dir=" + (place_ / "other")}));
  EXPECT_EQ(place_.metrics("other").size(), 4u);
}

TEST_F(Checkpoints, WeightsAloneAreNotGoneOnFrom) {
  ASSERT_EQ(train({"checkpoint.content=weights"}).exit_code, 0);
  const std::string newest = place_ / "run/ckpt/step-00000004";
  expect_one_line(train({"run.steps=6"}), 64,
                  {"checkpoint.resume = auto: " + newest + " holds weights alone", "set checkpoint.resume to \"never\"",
                   "model.init_from = " + newest});
}

// An older one in its place would train steps again that are trained, and set their weights aside.
TEST_F(Checkpoints, OneOfWeightsAloneIsNotPassedOverInSilence) {
  ASSERT_EQ(train({"run.steps=2"}).exit_code, 0);
  ASSERT_EQ(train({"checkpoint.content=weights"}).exit_code, 0);
  const std::vector<std::string> before = place_.files();
  const std::string older = place_ / "run/ckpt/step-00000002", newest = place_ / "run/ckpt/step-00000004";
  for (const std::string& from : {std::string("auto"), place_ / "run/ckpt", newest})
    expect_one_line(train({"run.steps=6", "checkpoint.resume=" + from}), 64,
                    {"checkpoint.resume = " + from + ": " + newest + " holds weights alone",
                     "name " + older + " in checkpoint.resume",
                     "model.init_from = " + newest + " in a run.dir of its own"});
  EXPECT_EQ(place_.files(), before);
  const ProgramOutcome back = succeeded(train({"run.steps=6", "checkpoint.resume=" + older}));
  expect_parts(back.out, {"goes on from step 2\n"});
  succeeded(train({"model.init_from=" + newest + ".aside-1", "run.dir=" + (place_ / "other")}));
}

// A script that starts the command again on 75 would be refused with 64.
TEST_F(Checkpoints, WhoSavesWeightsAloneIsNotToldThatTheRunGoesOn) {
  BackgroundProgram job({"train", "--config", place_ / "config.json", "--set", "run.steps=100000", "--set",
                         "checkpoint.content=weights", "--set", "checkpoint.every=50000"});
  ASSERT_TRUE(within(150, [&] { return job.steps_said() > 0; })) << job.err();
  kill(job.process(), SIGTERM);
  EXPECT_EQ(job.wait_to_end(150), 128 + SIGTERM) << job.err();
  expect_parts(job.err(), {"its weights are saved, and no run goes on from weights alone"});
}

// The program where it may not read or write everything. Root may, and gives that up here.

namespace fs = std::filesystem;

class Permissions : public ::testing::Test {
 protected:
  // Its modes for the time of one command.
  class Closed {
   public:
    Closed(const std::string& path, mode_t mode) : path_(path), before_(fs::status(path).permissions()) {
      EXPECT_EQ(::chmod(path.c_str(), mode), 0) << path;
    }
    ~Closed() { fs::permissions(path_, before_); }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    std::string path_;
    fs::perms before_;
  };

  void SetUp() override {
    write_file(place_ / "secret", "");
    const Closed closed(place_ / "secret", 0);
    if (run("cat secret").exit_code == 0) GTEST_SKIP() << "this process cannot give up the right to read everything";
    fs::copy(TRIDENT_SOURCE_DIR "/configs/tokenizers/bytes", place_ / "tok");
    fs::copy(TRIDENT_SOURCE_DIR "/data/excerpt/valid.txt", place_ / "text");
    create_folder(place_ / "closed");
    write_file(place_ / "closed/d.lock", "");  // of another user's command that was killed
    const auto config = [](const std::string& run, const std::string& model) {
      return R"({"run": {"dir": ")" + run + R"(", "steps": 2}, "model": {)" + model + R"(}, "device": "cpu",
          "batch": {"global": 2, "micro": 2, "sequence": 16}, "precision": {"compute": "fp32"},
          "data": {"train": "v", "tokenizer": "tok"}, "checkpoint": {"every": 1, "keep_last": 0}})";
    };
    write_file(place_ / "c.json", config("run", R"("model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
          "vocab_size": 257, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32)"));
    write_file(place_ / "init.json", config("new", R"("init_from": "hf")"));
    for (const char* command : {"data prepare --input text --tokenizer tok --output v", "train --config c.json",
                                "convert --from ckpt run --to hf hf"}) {
      const ProgramOutcome done = start(command);
      ASSERT_EQ(done.exit_code, 0) << command << done.err;
    }
  }

  ProgramOutcome run(const std::string& script) const {
    std::vector<std::string> words{"sh", "-c", "cd '" + place_.path() + "' && " + script};
    if (::geteuid() == 0) words.insert(words.begin(), {"setpriv", "--bounding-set", "-dac_override,-dac_read_search"});
    return run_command(words);
  }
  ProgramOutcome start(const std::string& arguments) const { return run(TRIDENT_BINARY " " + arguments); }

  TemporaryFolder place_;
};

struct Hidden {
  const char* path;
  mode_t mode;
  const char* command;
  int code;
  const char* says;
};

TEST_F(Permissions, WhatMayNotBeReadIsCalledSo) {
  const std::string newest = "run/ckpt/step-00000002", manifest = newest + "/manifest.json",
                    shard = newest + "/weights/w-00000-0.safetensors";
  const std::vector<Hidden> table{
      {"c.json", 0, "train --config c.json", 64, "c.json: cannot be opened"},
      {"hf", 0600, "generate --hf hf --prompt a", 65, "--hf = hf: hf: cannot be read"},
      {"hf", 0600, "train --config init.json", 65, "hf: cannot be read"},
      {"hf", 0, "train --config init.json", 65, "hf: cannot be read"},
      {"hf", 0300, "convert --from hf hf --to ckpt new", 65, "hf: cannot be listed"},
      {"hf/model.safetensors", 0, "eval --hf hf --ids 1", 65, "--hf = hf: hf/model.safetensors: cannot be opened"},
      {"tok", 0600, "data prepare --input text --tokenizer tok --output new", 65, "tok: cannot be read"},
      {"tok", 0, "train --config c.json --set run.dir=new", 65, "tok: cannot be listed"},
      {"v.trident.json", 0, "data inspect v", 65, "v.trident.json: cannot be opened"},
      {"run", 0, "ckpt ls run", 65, "run: cannot be listed"},
      {"run/ckpt", 0600, "ckpt show run", 65, "step-00000002: cannot be opened"},
      {"run/ckpt", 0600, "ckpt show run/2", 65, "step-00000002: cannot be listed"},
      {"run/ckpt", 0300, "eval --ckpt run --data v", 65, "--ckpt = run: run/ckpt: cannot be listed"},
      {"run/ckpt", 0300, "train --config c.json --set run.dir=new --set checkpoint.resume=run", 65,
       "checkpoint.resume = run: run/ckpt: cannot be listed"},
      {manifest.c_str(), 0, "ckpt verify run", 65, "step-00000002/manifest.json: cannot be opened"},
      {manifest.c_str(), 0, "ckpt prune run --keep-last 1 --dry-run", 65, "step-00000002/manifest.json: cannot be opened"},
      {manifest.c_str(), 0, "generate --ckpt run --prompt a", 65, "step-00000002/manifest.json: cannot be opened"},
      {shard.c_str(), 0, "ckpt verify run", 65, "w-00000-0.safetensors: cannot be opened"},
      {shard.c_str(), 0, "ckpt prune run --keep-last 1", 65, "w-00000-0.safetensors: cannot be opened"},
      {shard.c_str(), 0, "eval --ckpt run --data v", 65, "w-00000-0.safetensors: cannot be opened"},
      {shard.c_str(), 0, "convert --from ckpt run --to hf new", 65, "w-00000-0.safetensors: cannot be opened"},
      {shard.c_str(), 0, "train --config c.json --set run.steps=3", 65, "w-00000-0.safetensors: cannot be opened"},
      {"closed", 0500, "train --config c.json --set run.dir=closed/a/run", 74, "run.dir = closed/a/run: "},
      {"closed", 0, "train --config c.json --set run.dir=closed/run", 74, "run.dir = closed/run: "},
      {"closed", 0500, "train --config c.json --set run.dir=new --set checkpoint.dir=closed/ckpt", 64,
       "checkpoint.dir = closed/ckpt: the folder cannot be created"},
      {"run/ckpt", 0500, "train --config c.json --set run.steps=3", 74, "checkpoint.dir = run/ckpt: run/ckpt/probe-"},
      {"closed/d.lock", 0, "data prepare --input text --tokenizer tok --output closed/d", 74,
       "closed/d.lock: cannot be opened for writing: Permission denied; remove it once"},
      {"closed", 0500, "data prepare --input text --tokenizer tok --output closed/new", 74,
       "closed/new.lock: cannot be opened for writing: Permission denied; check the folder's permissions"},
      {"closed", 0500, "convert --from ckpt run --to hf closed/hf", 74, "the folder cannot be created"},
  };
  for (const Hidden& hidden : table) {
    SCOPED_TRACE(fmt::format("{} of mode {:o}: {}", hidden.path, hidden.mode, hidden.command));
    const ProgramOutcome outcome = [&] {
      const Closed closed(place_ / hidden.path, hidden.mode);
      return start(hidden.command);
    }();
    EXPECT_EQ(outcome.exit_code, hidden.code) << outcome.out << outcome.err;
    expect_parts(outcome.err, {hidden.says, "Permission denied; "});
    for (const char* part : {"damaged", "skipped", "remove this file", "this is a bug"})
      EXPECT_EQ((outcome.out + outcome.err).find(part), std::string::npos) << outcome.out << outcome.err;
    fs::remove_all(place_ / "new");  // a run's log of its failure
  }
  EXPECT_EQ(start("train --config c.json --set run.steps=3").exit_code, 0) << "and nothing is in its way afterwards";
}

TEST_F(Permissions, WhatCannotBeLookedAtIsListedSo) {
  const Closed closed(place_ / "run/ckpt", 0600);
  const ProgramOutcome listed = succeeded(start("ckpt ls run"));
  expect_parts(listed.out, {"no permission"});
  EXPECT_EQ(listed.out.find("damaged"), std::string::npos) << listed.out;
}

TEST_F(Permissions, ReadersNeedNoRightToWrite) {
  const TemporaryFolder out;
  ASSERT_EQ(run("chmod -R a-w .").exit_code, 0);
  for (const std::string command :
       {"eval --ckpt run --data v", "generate --ckpt run --prompt a --max-new-tokens 2",
        "generate --hf hf --prompt-ids 1 --max-new-tokens 2", "ckpt ls run", "ckpt show run/1", "ckpt verify run",
        "ckpt diff run run", "ckpt prune run --keep-last 1 --dry-run", "data inspect v"}) {
    const ProgramOutcome outcome = start(command);
    EXPECT_EQ(outcome.exit_code, 0) << command << outcome.err;
  }
  EXPECT_EQ(start("convert --from ckpt run --to hf '" + (out / "hf") + "'").exit_code, 0);
  EXPECT_EQ(start("convert --from hf hf --to ckpt '" + (out / "ckpt") + "'").exit_code, 0);
  run("chmod -R u+w .");
}

// In a folder that several users share.
TEST_F(Permissions, WhatCannotBeRemovedIsInNobodysWay) {
  const Closed others(place_ / "run/ckpt/step-00000001/weights", 0500);
  const ProgramOutcome first = succeeded(start("train --config c.json --set run.steps=4 --set checkpoint.keep_last=1"));
  expect_parts(first.err, {"step-00000001.trash-1: cannot be removed: Permission denied"});
  const auto names = [&] {
    std::vector<std::string> found;
    for (const std::string& name : names_in(place_ / "run/ckpt"))
      if (name.starts_with("step-")) found.push_back(name);
    return found;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000001.trash-1", "step-00000002", "step-00000004"}));
  succeeded(start("train --config c.json --set run.steps=5 --set checkpoint.keep_last=1"));
  EXPECT_EQ(names().back(), "step-00000005");
  fs::rename(place_ / "run/ckpt/step-00000001.trash-1", place_ / "run/ckpt/step-00000001");
}

}  // namespace
}  // namespace trident
