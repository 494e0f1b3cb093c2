// Text by the real program, from a checkpoint that it trained.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

class Generate : public Checkpoints {
 protected:
  // With --ckpt of what train() saved.
  ProgramOutcome generate(const std::vector<std::string>& more, const std::string& environment = "") const {
    return run_program(plus({"generate", "--ckpt", place_ / "run/ckpt", "--set", "precision.compute=fp32"}, more), environment);
  }
  std::string ids(const std::vector<std::string>& more) const {
    const ProgramOutcome outcome = succeeded(generate(plus({"--print-ids", "--max-new-tokens", "8"}, more)));
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
};

std::size_t words_of(const std::string& line) {
  std::istringstream words(line);
  std::size_t count = 0;
  for (std::string word; words >> word;) ++count;
  return count;
}

TEST_F(Generate, IdsAreTheSameInEveryLayoutAndBatch) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> greedy{"--prompt-ids", "464 3290", "--greedy"};
  const std::string expected = ids(greedy);
  EXPECT_EQ(words_of(expected), 8u) << expected;
  EXPECT_EQ(expected.find('\n'), expected.size() - 1);
  for (const char* layout : {"parallel=1DP x 2PP x 1TP", "parallel=1DP x 1PP x 2TP", "parallel=2DP x 2PP x 2TP"})
    EXPECT_EQ(ids(plus(greedy, {"--set", layout, "--set", "parallel.zero=zero3"})), expected) << layout;
  const std::vector<std::string> interleaved{"--set", "parallel.schedule=interleaved", "--set", "parallel.virtual_stages=2"};
  EXPECT_EQ(ids(plus(plus(greedy, {"--set", "parallel=1DP x 2PP x 1TP"}), interleaved)), expected);
  const std::vector<std::string> unseeded{"--prompt", "The dog", "--prompt-ids", "464 3290", "-n", "3", "--top-k", "50"};
  const std::vector<std::string> drawn = plus(unseeded, {"--seed", "3"});
  const std::string samples = ids(drawn);
  EXPECT_EQ(ids(plus(drawn, {"--batch", "1"})), samples);
  EXPECT_EQ(ids(plus(drawn, {"--set", "parallel.data=3"})), samples);
  EXPECT_NE(ids(plus(unseeded, {"--seed", "4"})), samples);
}

// Who trained it, and which shards who held, is nothing to the text: draws are keyed by prompt, sample and position.
TEST_F(Generate, DrawsOfARunUnderZero3AreTheSameInEveryLayout) {
  ASSERT_EQ(train({"parallel=2DP x 2PP x 1TP", "parallel.zero=zero3"}).exit_code, 0);
  const std::vector<std::string> drawn{"--prompt", "The dog", "--prompt-ids", "464 3290", "-n", "3", "--seed", "3", "--temperature",
                                       "0.9"};
  const std::string expected = ids(drawn);
  EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), 6);
  EXPECT_NE(ids(plus(drawn, {"--repetition-penalty", "1.5"})), expected) << "greedy text would not see the draws";
  for (const char* zero : {"zero1", "zero2", "shard_grad_op", "zero3"})
    for (const char* layout : {"parallel=2DP x 1PP x 1TP", "parallel=2DP x 2PP x 1TP", "parallel=3DP x 1PP x 1TP"})
      EXPECT_EQ(ids(plus(drawn, {"--set", layout, "--set", std::string("parallel.zero=") + zero})), expected) << layout << zero;
}

// Before anything is allocated: 1.6 TB of weights.
TEST_F(Generate, WhatMemoryHasNoRoomForIsRefused) {
  write_file(place_ / "large.json", R"({"run": {"dir": "none", "steps": 1}, "model": {"preset": "llama3.1-405b"},
    "batch": {"global": 1, "sequence": 1}, "data": {"train": "none"}})");
  const std::vector<std::string> large{"generate", "--config", place_ / "large.json", "--prompt-ids", "1", "--set",
                                       "precision.compute=fp32"};
  for (const char* layout : {"parallel=1DP x 1PP x 1TP", "parallel=1DP x 2PP x 1TP"})
    expect_one_line(run_program(plus(large, {"--set", layout})), 64,
                    {"the ranks need 16", " GB (of rank 0: ", "--batch or --max-new-tokens", "precision.compute=bf16"});
}

TEST_F(Generate, TextIdsAndLogProbabilitiesSayTheSame) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> what{"--prompt", "Once upon a time", "--max-new-tokens", "12", "--greedy", "--logprobs"};
  const ProgramOutcome text = succeeded(generate(what));
  const ProgramOutcome json = succeeded(generate(plus(what, {"--json"})));
  const JsonValue value = parse_json(json.out, "output");
  EXPECT_EQ(text.out.substr(0, text.out.rfind('\n', text.out.size() - 2) + 1), value.find("text")->as_string() + "\n");
  EXPECT_EQ(value.find("ids")->items().size(), 12u);
  EXPECT_EQ(value.find("logprobs")->items().size(), 12u);
  for (const JsonValue& p : value.find("logprobs")->items()) EXPECT_LT(p.as_number(), 0);
  EXPECT_EQ(value.find("end")->as_string(), "length");
  EXPECT_EQ(words_of(text.out.substr(text.out.rfind('\n', text.out.size() - 2))), 12u);
}

TEST_F(Generate, TimingsCountEveryPass) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> what{"--prompt-ids", "1 2 3", "-n", "3", "--batch", "2", "--max-new-tokens", "5",
                                      "--ignore-end", "--timings"};
  const ProgramOutcome text = succeeded(generate(what));
  expect_parts(text.out, {"\nprompts: 3 of 3 tokens, ", "\nsteps: 8 of 2 tokens, "});  // two samples, then the third alone
  expect_parts(text.out, {" at which memory is read"});
  const ProgramOutcome json = succeeded(generate(plus(what, {"--json", "--set", "parallel.tensor=2"})));
  const JsonValue last = parse_json(json.out.substr(json.out.rfind('\n', json.out.size() - 2) + 1), "output");
  const JsonValue& steps = *last.find("timings")->find("steps");
  EXPECT_EQ(steps.find("passes")->as_integer(), 8);
  EXPECT_GT(steps.find("bytes_per_second")->as_number(), 0);
  EXPECT_EQ(steps.find("share"), nullptr);  // several ranks: nobody measured the machine
}

// Each of them ends a continuation, which then has it; a text, which is shown while it is made, does not.
TEST_F(Generate, SeveralTokensMayEndIt) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> greedy{"--prompt", "The dog", "--repetition-penalty", "5", "--greedy"};
  std::istringstream words(ids(plus(greedy, {"--ignore-end"})));
  std::vector<std::string> made(std::istream_iterator<std::string>(words), {});
  ASSERT_EQ(made.size(), 8u);
  std::string expected = made[0];
  for (std::size_t i = 1; i <= 2; ++i) expected += " " + made[i];
  const std::vector<std::string> ends{"--end", made[6], "--end", made[2]};
  EXPECT_EQ(ids(plus(greedy, ends)), expected + "\n");
  const ProgramOutcome live = generate(plus(plus(greedy, ends), {"--max-new-tokens", "8"}));
  const ProgramOutcome cut = generate(plus(greedy, {"--ignore-end", "--max-new-tokens", "2"}));
  EXPECT_EQ(live.out, cut.out);
}

TEST_F(Generate, ReadsPromptsFromFiles) {
  ASSERT_EQ(train().exit_code, 0);
  write_file(place_ / "two.txt", "The dog\nA longer line, with other words\n");
  write_file(place_ / "two.jsonl", "{\"ids\": [464, 3290]}\n\n\"A longer line, with other words\"\n");
  const std::string lines = ids({"--prompts", place_ / "two.txt", "--greedy"});
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_EQ(ids({"--prompts", place_ / "two.jsonl", "--greedy"}), lines);
  EXPECT_EQ(ids({"--prompt", "The dog", "--prompt", "A longer line, with other words", "--greedy"}), lines);
  write_file(place_ / "bad.jsonl", "\"good\"\n{\"ids\": [1, \"x\"]}\n");
  expect_one_line(generate({"--prompts", place_ / "bad.jsonl"}), 65, {"bad.jsonl:2", "not a prompt", "\"ids\""});
  write_file(place_ / "empty.txt", "");
  expect_one_line(generate({"--prompts", place_ / "empty.txt"}), 65, {"empty.txt", "holds no prompt"});
  expect_one_line(generate({"--prompts", place_ / "none.txt"}), 65, {"none.txt"});
}

TEST_F(Generate, RefusesWhatCannotBe) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> ids{"--prompt-ids", "1 2"};
  expect_one_line(generate({}), 64, {"no prompt given", "--prompt-ids"});
  expect_one_line(generate({"--prompt-ids", "1 x"}), 64, {"--prompt-ids", "\"x\"", "no token id"});
  expect_one_line(generate({"--prompt-ids", ""}), 64, {"prompt 0 has no token"});
  expect_one_line(generate({"--prompt-ids", "1 2 99999"}), 64, {"prompt 0", "99999", "vocabulary 0 .. 50256"});
  expect_one_line(generate(plus(ids, {"--temperature", "-1"})), 64, {"--temperature = -1"});
  expect_one_line(generate(plus(ids, {"--top-p", "0"})), 64, {"--top-p = 0"});
  for (const char* penalty : {"0", "-1", "1e-7", "2e6", "nan", "inf"})
    expect_one_line(generate(plus(ids, {"--repetition-penalty", penalty})), 64, {"--repetition-penalty = ", "from 1e-6 to 1e6"});
  for (const char* penalty : {"1e-6", "1e6"})
    EXPECT_EQ(generate(plus(ids, {"--repetition-penalty", penalty, "--max-new-tokens", "3"})).exit_code, 0) << penalty;
  expect_one_line(generate(plus(ids, {"--batch", "33"})), 64, {"--batch = 33", "1 to 32"});
  expect_one_line(generate(plus(ids, {"-n", "0"})), 64, {"-n = 0"});
  expect_one_line(generate(plus(ids, {"--stop", ""})), 64, {"--stop"});
  expect_one_line(generate(plus(ids, {"--max-new-tokens", "100000"})), 64,
                  {"--max-new-tokens = 100000", "positions", "use at most"});
  expect_one_line(generate(plus(ids, {"--set", "parallel.tensor=3"})), 64, {"parallel.tensor = 3"});
  expect_one_line(generate(plus(ids, {"--set", "parallel.tenso=2"})), 64, {"parallel.tenso"});
  expect_one_line(generate(plus(ids, {"--set", "parallel.virtual_stages=2"})), 64, {"parallel.virtual_stages = 2", "interleaved"});
  expect_one_line(generate(plus(ids, {"--set", "parallel.context=2"})), 64, {"parallel.context = 2"});
  expect_one_line(generate(plus(ids, {"--set", "device=cuda"})), 64, {"device = cuda"});
  expect_one_line(generate(plus(ids, {"--tokenizer", "no/such"})), 64, {"--tokenizer", "no/such"});
  // Flags that would have no effect are refused.
  expect_one_line(generate(plus(ids, {"--greedy", "--temperature", "1"})), 64, {"--temperature", "--greedy"});
  expect_one_line(generate(plus(ids, {"--greedy", "--top-k", "4"})), 64, {"--top-k", "--greedy"});
  expect_one_line(generate(plus(ids, {"--temperature", "0", "--top-p", "0.5"})), 64, {"--top-p", "--temperature 0"});
  expect_one_line(generate(plus(ids, {"--greedy", "--seed", "4"})), 64, {"--seed", "nothing is drawn"});
  expect_one_line(generate(plus(ids, {"--end", "4", "--end", "99999999"})), 64, {"--end", "99999999"});
  expect_one_line(generate(plus(ids, {"--ignore-end", "--end", "4"})), 64, {"--end", "--ignore-end"});
  expect_one_line(generate(plus(ids, {"--json", "--print-ids"})), 64, {"--print-ids", "--json"});
  expect_one_line(generate(plus(ids, {"--set", "batch.micro=4"})), 64, {"--set batch.micro=4", "--batch"});
  expect_one_line(generate(plus(ids, {"--set", "log.every=4"})), 64, {"--set log.every=4", "nothing is trained"});
  expect_one_line(run_program({"generate", "--prompt-ids", "1"}), 64, {"--ckpt"});
  expect_one_line(run_program({"generate", "--ckpt", place_ / "nowhere", "--prompt-ids", "1"}), 65, {"--ckpt", "nowhere"});
}

// The closing line's command is pasted: it names the template that the data were made by, merged ones, too.
TEST_F(Generate, TheCommandThatATrainingEndsWithRuns) {
  write_file(place_ / "chats.jsonl",
             R"({"messages": [{"role": "user", "content": "The dog"}, {"role": "assistant", "content": "runs and runs."}]})" "\n");
  write_file(place_ / "t e.jinja", "{% for m in messages %}{{ m.content }}{% generation %}.{% endgeneration %}{% endfor %}");
  for (const std::string name : {"one", "two"})
    succeeded(run_program({"data", "prepare", "--chat", "--template", place_ / "t e.jinja", "--loss", "all", "--tokenizer", "gpt2",
                           "--input", place_ / "chats.jsonl", "--output", place_ / name}));
  succeeded(run_program({"data", "merge", "--input", place_ / "one", place_ / "two", "--output", place_ / "both"}));
  const auto next = [&](const std::vector<std::string>& more) {
    const std::string out = succeeded(place_.train(plus({"data.train=" + (place_ / "both"), "run.overwrite=true", "run.steps=1",
                                                         "batch.sequence=4", "batch.global=1", "checkpoint.every=end"}, more))).out;
    return out.substr(out.find("next:   trident ") + 16);
  };
  const std::string named = next({"data.tokenizer=gpt2"}), unnamed = next({"data.tokenizer=null"});
  EXPECT_TRUE(named.ends_with(fmt::format(" --chat --template '{}'\n", place_ / "t e.jinja"))) << named;
  EXPECT_EQ(unnamed, named) << "the data's record names the tokenizer";
  succeeded(run_command({"sh", "-c", fmt::format("echo The dog | {} {}", TRIDENT_BINARY, unnamed)}));
}

// Lines of standard input are answered as files of messages are that hold all that was said before.
TEST_F(Generate, TalksByATemplateWithAllThatWasSaid) {
  ASSERT_EQ(train().exit_code, 0);
  write_file(place_ / "t.jinja",
             "{% for m in messages %}{{ m.role[0] }}{{ m.content }}<|endoftext|>{% endfor %}"
             "{% if add_generation_prompt %}a{% endif %}");
  const std::vector<std::string> how{"--template", place_ / "t.jinja", "--greedy"}, few{"--max-new-tokens", "6"};
  const std::vector<std::string> chatml{"--template", "chatml", "--greedy"};
  JsonValue::Array said;
  const auto message = [&](const char* role, std::string_view text) {
    said.emplace_back().set("role", role);
    said.back().set("content", text);
    write_file(place_ / "m.json", to_json_text(JsonValue(said)));
  };
  std::string expected;
  const auto answer_messages = [&](const char* question) {
    message("user", question);
    const ProgramOutcome answer = succeeded(generate(plus(plus({"--messages", place_ / "m.json"}, how), few)));
    message("assistant", std::string_view(answer.out).substr(0, answer.out.size() - 1));
    expected += answer.out;
  };
  answer_messages("The dog");
  const std::string first = to_json_text(JsonValue(said));
  answer_messages("runs");
  const auto talk = [&](const std::string& lines, const std::vector<std::string>& more, const std::vector<std::string>& by) {
    write_file(place_ / "lines", lines);
    const std::vector<std::string> words{
        "sh", "-c", "from=$1; shift; exec \"$@\" < \"$from\"", "sh", place_ / "lines", TRIDENT_BINARY};
    const std::vector<std::string> command{"generate", "--ckpt", place_ / "run/ckpt", "--set", "precision.compute=fp32", "--chat"};
    return run_command(plus(words, plus(plus(command, by), more)));
  };
  EXPECT_EQ(succeeded(talk("The dog\nruns\n\nnever read\n", few, how)).out, expected);
  write_file(place_ / "m.json", first);
  const std::size_t line = expected.find('\n');
  EXPECT_EQ(succeeded(talk("runs", plus(few, {"--messages", place_ / "m.json"}), how)).out, expected.substr(line + 1));
  EXPECT_EQ(succeeded(talk("", few, how)).out, "");
  EXPECT_EQ(succeeded(talk("The dog", {}, chatml)).err.find("warning: the built-in template chatml writes "
                                                                         "\"<|im_start|>\", which is no token"), 0u);
  const ProgramOutcome full = talk(std::string(200, '.') + " The dog\nruns\n", {}, how);
  EXPECT_EQ(full.exit_code, 64);
  EXPECT_NE(full.err.find("--chat: the conversation has"), full.err.npos) << full.err;
  expect_one_line(talk("", {"--set", "parallel.tensor=2"}, how), 64, {"--chat: 2 ranks"});
  expect_one_line(talk("", {"--json"}, how), 64, {"--json", "--chat prints the text"});
  expect_one_line(talk("", {"--prompt", "hi"}, how), 64, {"--prompt: --chat answers lines of standard input; "});
  expect_one_line(generate({"--chat"}), 65, {"--chat: tokenizer \"gpt2\" has no chat template", "chatml", "--prompt TEXT"});
}

// Wherever a checkpoint is asked for: the folder of a run whose checkpoints lie in it, and of one that names another place.
TEST_F(Generate, ARunsFolderMeansItsCheckpoints) {
  const std::string other = place_ / "other", elsewhere = place_ / "elsewhere";
  ASSERT_EQ(train().exit_code, 0);
  ASSERT_EQ(train({"run.dir=" + other, "checkpoint.dir=" + elsewhere}).exit_code, 0);
  const std::string run = place_ / "run";
  int made = 0;
  for (const auto& [given, meant] : {std::pair{run + "/", run + "/ckpt"}, {other, elsewhere}}) {
    const std::string hf = fmt::format("{}{}", place_ / "hf", made++), last = given + "/4";
    const std::string next = fmt::format("run.dir={}-{}", place_ / "next", made);
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"generate", "--ckpt", given, "--prompt-ids", "5", "--max-new-tokens", "1"}, {"eval", "--ckpt", last, "--ids", "5 17"},
             {"convert", "--from", "ckpt", given, "--to", "hf", hf}, {"ckpt", "ls", given}, {"ckpt", "show", given},
             {"ckpt", "verify", last}, {"ckpt", "diff", given, last}, {"ckpt", "prune", given, "--keep-last", "1", "--dry-run"}}) {
      const ProgramOutcome outcome = run_program(words);
      EXPECT_EQ(outcome.exit_code, 0) << words[0] << " " << words[1] << " " << given << ": " << outcome.err;
      if (words[1] != "show" && words[1] != "verify") continue;
      EXPECT_EQ(outcome.out.rfind(meant + "/step-00000004", 0), 0u) << outcome.out;
    }
    for (const auto& [setting, line] : {std::pair{"model.init_from=" + given, "weights of " + meant + "/step-00000004"},
                                        {"checkpoint.resume=" + given, std::string("goes on from step 4")}}) {
      const ProgramOutcome outcome = train({next, "run.overwrite=true", "run.steps=5", setting});
      EXPECT_EQ(outcome.exit_code, 0) << setting << outcome.err;
      expect_parts(outcome.out, {line});
    }
    expect_one_line(run_program({"eval", "--hf", given, "--ids", "5"}), 65, {"holds checkpoints", "--ckpt"});
  }
  expect_one_line(run_program({"eval", "--ckpt", place_ / "run/9", "--ids", "5"}), 65, {"run/9: no such folder"});
  expect_one_line(run_program({"ckpt", "show", run + "/9"}), 65, {"there is no " + run + "/ckpt/step-00000009"});
}

// Text of a configuration whose run has not saved is noise; who measures says so.
TEST_F(Generate, AConfigurationMeansItsRunsWeightsAndRandomOnesAreSaid) {
  const std::string config = place_ / "config.json", small = place_ / "small.json";
  write_file(small, replaced(read_file(config), "\"hidden_size\": 32", "\"hidden_size\": 16"));
  const auto said = [&](const std::string& of, const std::vector<std::string>& more) {
    return run_program(plus({"generate", "--config", of, "--set", "precision.compute=fp32", "--prompt-ids", "464", "--greedy",
                             "--print-ids", "--max-new-tokens", "8"},
                            more));
  };
  const ProgramOutcome random = succeeded(said(config, {})), asked = said(config, {"--random-weights"});
  EXPECT_EQ(random.err.rfind("weights are random, because the run of " + config, 0), 0u) << random.err;
  EXPECT_EQ(std::count(random.err.begin(), random.err.end(), '\n'), 1) << random.err;
  EXPECT_EQ(asked.err, "");
  EXPECT_EQ(asked.out, random.out);
  ASSERT_EQ(train({"run.steps=30", "optimizer.lr=0.02", "checkpoint.every=30"}).exit_code, 0);
  const ProgramOutcome newest = said(config, {});
  EXPECT_EQ(newest.err,
            "weights of " + (place_ / "run/ckpt/step-00000030") + ", the newest checkpoint of the run of " + config + "\n");
  EXPECT_EQ(newest.out, ids({"--prompt-ids", "464", "--greedy"}));
  EXPECT_EQ(said(config, {"--random-weights"}).out, asked.out);
  EXPECT_NE(newest.out, asked.out);
  expect_one_line(said(small, {}), 64, {"hidden_size is 16", "step-00000030", "a model with 32", "--random-weights", "--ckpt"});
  EXPECT_EQ(said(small, {"--random-weights"}).exit_code, 0);
  expect_one_line(generate({"--prompt-ids", "1", "--random-weights"}), 64, {"--random-weights", "--ckpt"});
}

// trident generate beside transformers' generate() (scripts/oracle/greedy_goldens.py): 32 new tokens of five prompts of unlike
// lengths in one batch, folders in fp32, bf16 and fp16.

class GreedyGoldens : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder_ = TRIDENT_SOURCE_DIR "/tests/infer/goldens/" + GetParam();
  JsonValue golden_ = parse_json(read_file(folder_ + "/greedy.json"), "greedy.json");

  const JsonValue& run(const std::string& name) const { return *golden_.find("runs")->find(name); }

  // Every prompt of the golden in one command.
  ProgramOutcome generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"generate",
                                       "--hf",
                                       folder_,
                                       "--greedy",
                                       "--set",
                                       "precision.compute=fp32",
                                       "--max-new-tokens",
                                       fmt::format("{}", golden_.find("max_new_tokens")->as_integer())};
    for (const JsonValue& prompt : golden_.find("prompts")->items()) {
      std::vector<std::int64_t> ids;
      for (const JsonValue& id : prompt.items()) ids.push_back(id.as_integer());
      arguments = plus(arguments, {"--prompt-ids", fmt::format("{}", fmt::join(ids, " "))});
    }
    const ProgramOutcome outcome = succeeded(run_program(plus(arguments, more)));
    return outcome;
  }

  // Returns the line that --print-ids should print.
  std::string lines_of(const std::string& name) const {
    std::string lines;
    for (const JsonValue& continuation : run(name).find("continuations")->items()) {
      std::vector<std::int64_t> ids;
      for (const JsonValue& id : continuation.find("ids")->items()) ids.push_back(id.as_integer());
      lines += fmt::format("{}\n", fmt::join(ids, " "));
    }
    return lines;
  }
};

INSTANTIATE_TEST_SUITE_P(Families, GreedyGoldens,
                         ::testing::Values("gpt2", "llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3", "llama_dynamic",
                                           "olmo_clipped", "mistral_windowed", "qwen2_windowed", "llama_softcapped"),
                         [](const auto& info) { return info.param; });

// The goldens tell something: no choice is near another, so that rounding cannot excuse another text.
TEST_P(GreedyGoldens, ChoicesAreClear) {
  EXPECT_GE(golden_.find("prompts")->items().size(), 5u);
  for (const char* name : {"plain", "penalty", "end"}) EXPECT_GE(run(name).find("gap")->as_number(), 1e-3) << name;
  EXPECT_NE(lines_of("plain"), lines_of("penalty"));
  EXPECT_NE(lines_of("plain"), lines_of("end"));
}

TEST_P(GreedyGoldens, TheTextIsThatOfTransformers) {
  const std::vector<std::string> plain{"--ignore-end", "--print-ids"};
  EXPECT_EQ(generate(plain).out, lines_of("plain"));
  EXPECT_EQ(generate(plus(plain, {"--batch", "2"})).out, lines_of("plain"));
  EXPECT_EQ(generate(plus(plain, {"--set", "parallel=2DP x 2PP x 2TP"})).out, lines_of("plain"));
}

TEST_P(GreedyGoldens, ARepetitionPenaltyChangesItAsThere) {
  const std::string penalty = fmt::format("{}", run("penalty").find("repetition_penalty")->as_number());
  const std::vector<std::string> flags{"--ignore-end", "--print-ids", "--repetition-penalty", penalty};
  EXPECT_EQ(generate(flags).out, lines_of("penalty"));
  EXPECT_EQ(generate(plus(flags, {"--set", "parallel.tensor=2"})).out, lines_of("penalty"));
}

// The folder's generation_config.json says which token, or which of two, ends a continuation; that token is shown.
TEST_P(GreedyGoldens, TheEndTokenEndsIt) { EXPECT_EQ(generate({"--print-ids"}).out, lines_of("end")); }

TEST_P(GreedyGoldens, LogProbabilitiesAreThoseOfTheModel) {
  for (const auto& [name, flags] :
       {std::pair<std::string, std::vector<std::string>>{"plain", {}},
        {"penalty", {"--repetition-penalty", fmt::format("{}", run("penalty").find("repetition_penalty")->as_number())}}}) {
    std::istringstream lines(generate(plus(flags, {"--ignore-end", "--logprobs", "--json"})).out);
    for (const JsonValue& expected : run(name).find("continuations")->items()) {
      std::string line;
      ASSERT_TRUE(std::getline(lines, line));
      const JsonValue value = parse_json(line, "generate --json");
      const JsonValue::Array &found = value.find("logprobs")->items(), &wanted = expected.find("logprobs")->items();
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i].as_number(), wanted[i].as_number(), 1e-4)  // f32 rounding of logits up to 70 large
            << name << " of prompt " << value.find("prompt")->as_integer() << ", token " << i;
      EXPECT_EQ(value.find("end")->as_string(), "length");
    }
  }
}

}  // namespace
}  // namespace trident
