// trident eval, generate, and training from a Hugging Face folder by processes: what thread ranks say, printed once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

const char* const kMpirun = TRIDENT_SOURCE_DIR "/scripts/mpirun_local";
const std::string kGoldens = TRIDENT_SOURCE_DIR "/tests/";

struct Layout {
  int ranks;
  const char* parallel;
};
constexpr Layout kLayouts[] = {{2, "parallel=1DP x 1PP x 2TP"},
                               {4, "parallel=2DP x 2PP x 1TP"},
                               {6, "parallel=3DP x 1PP x 2TP"},
                               {4, "parallel=1DP x 2PP x 2TP"}};

class ProcessForward : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  }
  static ProgramOutcome launch(int ranks, const std::vector<std::string>& arguments) {
    return run_command(plus({kMpirun, std::to_string(ranks), TRIDENT_BINARY}, arguments));
  }
};

TEST_F(ProcessForward, EvalOfAFolderSaysWhatThreadsSay) {
  const std::vector<std::string> eval{"eval",
                                      "--hf",
                                      kGoldens + "model/goldens/families/qwen3",
                                      "--ids",
                                      "5 17 2 9 31 44 8 50 3 3 12 40 6 1 0 22 7",
                                      "--sequence",
                                      "5",
                                      "--token-losses",
                                      "--json",
                                      "--set",
                                      "precision.compute=fp32"};
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.parallel);
    const std::vector<std::string> with = plus(eval, {"--set", layout.parallel, "--set", "parallel.zero=zero3"});
    const ProgramOutcome processes = launch(layout.ranks, with), threads = run_program(with);
    ASSERT_EQ(threads.exit_code, 0) << threads.err;
    ASSERT_EQ(processes.exit_code, 0) << processes.err;
    EXPECT_EQ(processes.out, threads.out);
    EXPECT_EQ(parse_json(processes.out, "eval").find("token_losses")->items().size(), 16u);
  }
}

TEST_F(ProcessForward, GeneratesTheGoldens) {
  const std::string folder = kGoldens + "generate/goldens/llama";
  const JsonValue golden = parse_json(read_file(folder + "/greedy.json"), "greedy.json");
  std::vector<std::string> generate{"generate",
                                    "--hf",
                                    folder,
                                    "--greedy",
                                    "--print-ids",
                                    "--ignore-end",
                                    "--max-new-tokens",
                                    "32",
                                    "--set",
                                    "precision.compute=fp32"};
  std::string expected;
  const auto line = [](const JsonValue& ids) {
    std::string text;
    for (const JsonValue& id : ids.items()) text += (text.empty() ? "" : " ") + std::to_string(id.as_integer());
    return text;
  };
  for (const JsonValue& prompt : golden.find("prompts")->items()) generate = plus(generate, {"--prompt-ids", line(prompt)});
  for (const JsonValue& row : golden.find("runs")->find("plain")->find("continuations")->items())
    expected += line(*row.find("ids")) + "\n";
  for (const Layout& layout : kLayouts) {
    const ProgramOutcome outcome = launch(layout.ranks, plus(generate, {"--set", layout.parallel}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, expected) << layout.parallel;
  }
}

// What is wrong is said once, by whichever rank, and its code is the job's.
TEST_F(ProcessForward, WhatIsWrongIsSaidOnce) {
  TemporaryFolder place;
  const std::string folder = place / "short";
  create_folder(folder);
  const std::string golden = kGoldens + "model/goldens/families/qwen3";
  write_file(folder + "/config.json", read_file(golden + "/config.json"));
  write_file(folder + "/model.safetensors", read_file(golden + "/model.safetensors").substr(0, 5000));
  struct Case {
    std::vector<std::string> arguments;
    int code;
    std::string said;
  };
  const std::vector<Case> cases{
      {{"eval", "--hf", folder, "--ids", "5 6"}, 65, "short/model.safetensors"},
      {{"eval", "--hf", golden, "--ids", "5 99"}, 64, "--ids: 99"},
      {{"eval", "--hf", golden, "--choices", place / "none.jsonl"}, 65, "none.jsonl"},
      {{"generate", "--hf", folder, "--prompt-ids", "5 6"}, 65, "short/model.safetensors"},
      {{"generate", "--hf", golden, "--prompt-ids", "5 99"}, 64, "token 99"},
  };
  for (const Case& c : cases) {
    const ProgramOutcome outcome = launch(2, plus(c.arguments, {"--set", "parallel=1DP x 1PP x 2TP"}));
    const std::string said = outcome.out + outcome.err;
    EXPECT_EQ(outcome.exit_code, c.code) << said;
    const std::size_t at = said.find(c.said);
    ASSERT_NE(at, said.npos) << said;
    EXPECT_EQ(said.find("trident: ", said.find("trident: ") + 1), said.npos) << said;
  }
}

// Each process reads its own slices of a folder in fp16, cut into files; the run has the bits of thread ranks.
TEST_F(ProcessForward, TrainingBeginsWithAFolder) {
  Workplace place;
  ASSERT_EQ(place.train({"parallel.data=1", "run.steps=2", "checkpoint.every=2"}).exit_code, 0);
  const ProgramOutcome converted = run_program(
      {"convert", "--from", "ckpt", place / "run/ckpt", "--to", "hf", place / "hf", "--dtype", "fp16", "--shard-size", "2MB"});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  ASSERT_TRUE(file_exists(place / "hf/model.safetensors.index.json")) << converted.out;
  for (const auto& [ranks, parallel] : {Layout{2, "parallel=1DP x 1PP x 2TP"}, {4, "parallel=2DP x 2PP x 1TP"}}) {
    const std::vector<std::string> settings{"model.init_from=" + (place / "hf"), parallel, "parallel.zero=zero3", "run.steps=3",
                                            "log.every=1"};
    const std::string name = std::string("r") + std::to_string(ranks);
    std::vector<std::string> words{"train", "--config", place / "config.json", "--set", "run.dir=" + (place / (name + "p"))};
    for (const std::string& setting : settings) words = plus(words, {"--set", setting});
    const ProgramOutcome processes = launch(ranks, words);
    ASSERT_EQ(processes.exit_code, 0) << processes.out << processes.err;
    EXPECT_NE((processes.out + processes.err).find("a Hugging Face folder in f16"), std::string::npos) << processes.out;
    ASSERT_EQ(place.train(plus(settings, {"run.dir=" + (place / (name + "t"))})).exit_code, 0);
    const auto a = compared(place.metrics(name + "p"), kComparedKeys), b = compared(place.metrics(name + "t"), kComparedKeys);
    EXPECT_EQ(a.size(), 3u);
    EXPECT_EQ(a, b) << parallel;
  }
}

}  // namespace
}  // namespace trident
