// trident eval, generate, and training from a Hugging Face folder by processes: what thread ranks say, printed once.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "core/file_io.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/mpi/launched_job.h"

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

class ProcessForward : public ::testing::Test {
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
  const std::string folder = kGoldens + "infer/goldens/llama";
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
    const ProgramOutcome outcome = succeeded(launch(layout.ranks, plus(generate, {"--set", layout.parallel})));
    EXPECT_EQ(outcome.out, expected) << layout.parallel;
  }
}

// An error is said once, by whichever rank, and its code is the job's.
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
      {{"eval", "--hf", golden, "--ids", "5 99"}, 64, "--ids: token 99"},
      {{"eval", "--hf", golden, "--choices", place / "none.jsonl"}, 65, "none.jsonl"},
      {{"eval", "--hf", golden, "--ids", "5 x"}, 64, "no token id"},
      {{"eval", "--hf", golden, "--id", "5 6"}, 64, "--id"},
      {{"eval", "--hf", golden}, 64, "nothing to evaluate"},
      {{"generate", "--hf", golden, "--prompt-ids", "5 6", "--greedy", "--top-k", "3"}, 64, "--top-k"},
      {{"generate", "--hf", golden, "--temperature", "x"}, 64, "--temperature"},
      {{"generate", "--hf", folder, "--prompt-ids", "5 6"}, 65, "short/model.safetensors"},
      {{"generate", "--hf", golden, "--prompt-ids", "5 99"}, 64, "token 99"},
      {{"generate", "--hf", golden, "--prompts", place / "none.txt"}, 65, "none.txt"},
      {{"generate", "--hf", golden, "--prompt-ids", "5 6", "--set", "parallel.tenso=2"}, 64, "parallel.tenso"},
      {{"generate", "--hf", golden, "--prompt-ids", "5 6", "--set", "device=cuda"}, 64, "device = cuda"},
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

// Ranks that no degree asks for are data parallel, in both commands.
TEST_F(ProcessForward, DataRanksTakeWhatIsLeftOver) {
  const std::string golden = kGoldens + "model/goldens/families/qwen3";
  const std::vector<std::string> pp2{"--set", "parallel.pipeline=2", "--set", "precision.compute=fp32"};
  const std::vector<std::string> generate = plus({"generate", "--hf", golden, "--greedy", "--print-ids", "--ignore-end",
                                                  "--max-new-tokens", "8", "--prompt-ids", "5 6 7", "--prompt-ids", "9 8",
                                                  "--prompt-ids", "3"},
                                                 pp2);
  const std::vector<std::string> eval = plus({"eval", "--hf", golden, "--ids", "5 17 2 9 31 44 8 50", "--sequence", "3"}, pp2);
  for (const std::vector<std::string>& words : {generate, eval}) {
    const ProgramOutcome threads = succeeded(run_program(words)), processes = succeeded(launch(4, words));
    EXPECT_EQ(processes.out, threads.out);
    const ProgramOutcome odd = launch(3, words);
    EXPECT_EQ(odd.exit_code, 64) << odd.err;
    const std::string said = odd.out + odd.err, line = "3 ranks are not a multiple of tensor x context x pipeline = 2";
    ASSERT_NE(said.find(line), said.npos) << said;
    EXPECT_EQ(said.find(line, said.find(line) + 1), said.npos) << said;
  }
}

// Only the last stage sees the logits. The others do not wait for it.
TEST_F(ProcessForward, AnErrorOfOneRankEndsAllByName) {
  TemporaryFolder place;
  const std::string folder = place / "nan", golden = kGoldens + "model/goldens/families/qwen3";
  create_folder(folder);
  write_file(folder + "/config.json", read_file(golden + "/config.json"));
  std::string weights = read_file(golden + "/model.safetensors");
  std::fill(weights.end() - 64, weights.end(), '\xff');  // of model.norm.weight, the last one
  write_file(folder + "/model.safetensors", weights);
  const ProgramOutcome outcome =
      launch(2, {"generate", "--hf", folder, "--prompt-ids", "5 6", "--max-new-tokens", "4", "--set",
                 "parallel.pipeline=2"});
  const std::string said = outcome.out + outcome.err;
  EXPECT_EQ(outcome.exit_code, 65) << said;
  const std::regex line(
      R"(error: rank 1 \(host [^ ,]+, pid [0-9]+\) failed: prompt 0: .*not finite.*; in generating.*exit code 65 on all ranks)");
  EXPECT_TRUE(std::regex_search(said, line)) << said;
  const std::size_t first = said.find("not finite");
  EXPECT_EQ(said.find("not finite", first + 1), said.npos) << said;
}

struct Disturbance {
  int signal;
  const char* command;
  const char* layout;
  int ranks, victim;
};

class LostForward : public ProcessForward, public ::testing::WithParamInterface<Disturbance> {
 protected:
  // Work for minutes, of a model that takes no time to read.
  std::vector<std::string> endless() {
    const std::string golden = kGoldens + "model/goldens/families/qwen3";
    if (std::string(GetParam().command) == "generate")
      return {"generate", "--hf", golden, "--prompt-ids", "5 6 7", "-n", "1000000", "--ignore-end", "--max-new-tokens", "8"};
    std::string questions;
    for (int i = 0; i < 300'000; ++i) questions += "{\"context\": [5, 6], \"choices\": [[7, 8], [9]], \"answer\": 0}\n";
    write_file(place_ / "questions.jsonl", questions);
    return {"eval", "--hf", golden, "--choices", place_ / "questions.jsonl", "--set", "batch.micro=1"};
  }
  TemporaryFolder place_;
};

// As in training: one line says who was lost, and everybody ends within the same time.
TEST_P(LostForward, IsNamedAndEndsTheJob) {
  constexpr double kSecondsToEnd = 12;
  const Disturbance d = GetParam();
  const std::vector<std::string> words = plus(endless(), {"--set", std::string("parallel=") + d.layout});
  const bool stops = d.signal == SIGSTOP;
  for (int seconds = 1;; seconds *= 3) {  // until it works
    LaunchedJob job(place_ / "", "job" + std::to_string(seconds), d.ranks, words);
    ASSERT_TRUE(job.wait_for_ranks()) << job.said();
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    ASSERT_EQ(kill(job.rank(d.victim), d.signal), 0);
    const int code = job.wait_to_end(kSecondsToEnd);
    const std::string said = job.said();
    const std::regex line(fmt::format(
        R"(error: rank {} \(host [^ ,]+, pid {}\) {}.* in {}, last entered [a-z_]+ #[0-9]+ over .*exit code 76 on all ranks)",
        d.victim, job.rank(d.victim), stops ? "was stopped" : "was killed",
        std::string(d.command) == "eval" ? "evaluating" : "generating"));
    if (!std::regex_search(said, line) && seconds < 27) continue;
    EXPECT_TRUE(std::regex_search(said, line)) << said;
    EXPECT_EQ(said.find("on all ranks", said.find("on all ranks") + 1), said.npos) << said;
    EXPECT_EQ(code, stops ? 76 : 137) << said;
    EXPECT_EQ(job.survivors(), "");
    return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LostForward,
                         ::testing::Values(Disturbance{SIGKILL, "generate", "1DP x 1PP x 2TP", 2, 1},
                                         Disturbance{SIGSTOP, "generate", "1DP x 2PP x 1TP", 2, 0},
                                         Disturbance{SIGKILL, "eval", "2DP x 2PP x 1TP", 4, 0},
                                         Disturbance{SIGSTOP, "eval", "1DP x 1PP x 2TP", 2, 1}),
                         [](const auto& info) {
                           return std::string(info.param.command) + (info.param.signal == SIGKILL ? "Killed" : "Stopped");
                         });

// Each process reads its own slices of a folder in fp16, cut into files; the run has the bits of thread ranks.
TEST_F(ProcessForward, TrainingBeginsWithAFolder) {
  Workplace place;
  ASSERT_EQ(place.train({"parallel.data=1", "run.steps=2", "checkpoint.every=2"}).exit_code, 0);
  const ProgramOutcome converted = succeeded(run_program(
      {"convert", "--from", "ckpt", place / "run/ckpt", "--to", "hf", place / "hf", "--dtype", "fp16", "--shard-size", "2MB"}));
  ASSERT_TRUE(file_exists(place / "hf/model.safetensors.index.json")) << converted.out;
  for (const auto& [ranks, parallel] : {Layout{2, "parallel=1DP x 1PP x 2TP"}, {4, "parallel=2DP x 2PP x 1TP"}}) {
    const std::vector<std::string> settings{"model.init_from=" + (place / "hf"), parallel, "parallel.zero=zero3", "run.steps=3",
                                            "log.every=1"};
    const std::string name = std::string("r") + std::to_string(ranks);
    std::vector<std::string> words{"train", "--config", place / "config.json", "--set", "run.dir=" + (place / (name + "p"))};
    for (const std::string& setting : settings) words = plus(words, {"--set", setting});
    const ProgramOutcome processes = succeeded(launch(ranks, words));
    EXPECT_NE((processes.out + processes.err).find("a Hugging Face folder in f16"), std::string::npos) << processes.out;
    ASSERT_EQ(place.train(plus(settings, {"run.dir=" + (place / (name + "t"))})).exit_code, 0);
    const auto a = compared(place.metrics(name + "p"), kComparedKeys), b = compared(place.metrics(name + "t"), kComparedKeys);
    EXPECT_EQ(a.size(), 3u);
    EXPECT_EQ(a, b) << parallel;
  }
}

}  // namespace
}  // namespace trident
