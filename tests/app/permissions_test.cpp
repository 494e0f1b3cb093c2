// The program where it may not read or write everything. Root may, and gives that up here.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/program.h"

namespace trident {
namespace {

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
      {"tok", 0, "train --config c.json --set run.dir=new", 65, "tok: cannot be read"},
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
