// trident eval on checkpoints of real runs and on Hugging Face folders: every target once, the same number in every layout, that of
// transformers, what is refused.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/data/token_files.h"
#include "tests/support/safetensors.h"

namespace trident {
namespace {

class Eval : public Checkpoints {
 protected:
  // The object that --json prints.
  JsonValue json(const std::vector<std::string>& more) const {
    const ProgramOutcome outcome = succeeded(eval(plus(more, {"--json"})));
    return outcome.exit_code == 0 ? parse_json(outcome.out, "eval --json") : JsonValue();
  }
  ProgramOutcome eval(const std::vector<std::string>& more) const {
    return run_program(plus({"eval", "--ckpt", place_ / "run/ckpt"}, more));
  }
  std::string write(const std::string& name, const std::string& text) const {
    write_file(place_ / name, text);
    return place_ / name;
  }
  static double number(const JsonValue& json, const std::string& key) { return json.find(key)->as_number(); }
};

TEST_F(Eval, EveryLayoutSaysTheSame) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> data{"--data", place_ / "valid"};
  const JsonValue one = json(data);
  // One token of the file is not predicted; the windows of 32 do not divide the rest.
  const ProgramOutcome inspect = run_program({"data", "inspect", place_ / "valid", "--json"});
  const std::int64_t tokens = parse_json(inspect.out, "inspect").find("tokens")->as_integer();
  EXPECT_EQ(one.find("tokens")->as_integer(), tokens - 1);
  EXPECT_NE((tokens - 1) % 32, 0);
  EXPECT_DOUBLE_EQ(number(one, "ppl"), std::exp(number(one, "loss")));
  for (const std::string layout : {"3DP", "1DP x 2PP", "2DP x 2PP"}) {
    for (const std::string zero : {"zero1", "zero3"}) {
      const JsonValue other = json(plus(data, {"--set", "parallel=" + layout, "--set", "parallel.zero=" + zero}));
      EXPECT_EQ(number(other, "loss"), number(one, "loss")) << layout << " " << zero;
      EXPECT_EQ(other.find("tokens")->as_integer(), tokens - 1);
    }
  }
  const JsonValue tp = json(plus(data, {"--set", "parallel=2DP x 2PP x 2TP"}));
  EXPECT_NEAR(number(tp, "loss"), number(one, "loss"), 1e-6 * number(one, "loss"));
}

TEST_F(Eval, BitsPerByteCountTheTextsBytes) {
  ASSERT_EQ(train().exit_code, 0);
  const JsonValue report = json({"--data", place_ / "valid", "--tokenizer", "gpt2"});
  const double bytes = number(report, "bytes"), tokens = number(report, "tokens");
  EXPECT_GT(bytes, tokens);
  EXPECT_NEAR(number(report, "bits_per_byte"), number(report, "loss") * tokens / std::log(2.0) / bytes, 1e-12);
  const JsonValue without = json({"--data", place_ / "valid", "--set", "data.tokenizer=null"});
  EXPECT_TRUE(without.find("bits_per_byte")->is_null());
  EXPECT_EQ(number(without, "loss"), number(report, "loss"));
}

// A window gives each of its targets what lies before it there: one long window is the ids' own loss, token by token.
TEST_F(Eval, IdsWindowsAndStridesCountEachTargetOnce) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> ids{"--ids", "5 17 2 900 31 44 8"};
  expect_parts(succeeded(eval(ids)).out, {", step 4, windows of 32 tokens\n"});
  expect_parts(succeeded(eval(plus(ids, {"--sequence", "4", "--stride", "1"}))).out, {", windows of 4 tokens, 1 apart\n"});
  const JsonValue whole = json(plus(ids, {"--token-losses"}));
  EXPECT_EQ(whole.find("tokens")->as_integer(), 6);
  const JsonValue::Array& losses = whole.find("token_losses")->items();
  ASSERT_EQ(losses.size(), 6u);
  double sum = 0;
  for (const JsonValue& loss : losses) sum += loss.as_number();
  EXPECT_NEAR(number(whole, "loss"), sum / 6, 1e-12);
  // Windows of 4 and 2 targets: the second begins with token 4.
  const JsonValue short_last = json(plus(ids, {"--sequence", "4"}));
  const JsonValue first = json({"--ids", "5 17 2 900 31"}), rest = json({"--ids", "31 44 8"});
  EXPECT_EQ(short_last.find("tokens")->as_integer(), 6);
  EXPECT_NEAR(number(short_last, "loss") * 6, number(first, "loss") * 4 + number(rest, "loss") * 2, 1e-5);
  // A stride of 1 gives every later target 4 tokens of context.
  const JsonValue strided = json(plus(ids, {"--sequence", "4", "--stride", "1"}));
  const JsonValue ends[] = {json({"--ids", "17 2 900 31 44", "--token-losses"}),
                            json({"--ids", "2 900 31 44 8", "--token-losses"})};
  double expected = number(first, "loss") * 4;
  for (const JsonValue& end : ends) expected += end.find("token_losses")->items().back().as_number();
  EXPECT_EQ(strided.find("tokens")->as_integer(), 6);
  EXPECT_NEAR(number(strided, "loss") * 6, expected, 1e-5);
}

TEST_F(Eval, TargetsOfAnotherDocumentDoNotCount) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> ids{"--ids", "5 17 2 900 17 44 8", "--token-losses"};
  const std::vector<std::string> keys{"--set", "data.eod_mask_loss=true", "--set", "data.eod=17"};
  const JsonValue whole = json(ids), counted = json(plus(ids, keys));
  const JsonValue::Array &all = whole.find("token_losses")->items(), &some = counted.find("token_losses")->items();
  double sum = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(some[i].is_null(), i == 1 || i == 4) << "the input is 17";
    if (some[i].is_null()) continue;
    EXPECT_EQ(some[i].as_number(), all[i].as_number());
    sum += all[i].as_number();
  }
  EXPECT_EQ(counted.find("tokens")->as_integer(), 4);
  EXPECT_NEAR(number(counted, "loss"), sum / 4, 1e-12);
  // A question is one document, whatever is in it.
  const std::string file = write("q.jsonl", "{\"context\": [5, 17], \"choices\": [[2]], \"answer\": 0}\n");
  const std::vector<std::string> question{"--per-question", "--choices", file};
  EXPECT_EQ(to_json_text(json(question)), to_json_text(json(plus(question, keys))));
}

TEST_F(Eval, AMaskSaysWhichTargetsCount) {
  ASSERT_EQ(train().exit_code, 0);
  const Documents documents{{5, 17, 2}, {900, 31, 44, 8}};
  const std::vector<std::uint8_t> counts{1, 0, 1, 1, 0, 0, 1};
  write_masked_dataset(place_ / "chat", documents, counts, 50257);
  const auto losses_of = [&](const std::vector<std::string>& more) {
    return json(plus(more, {"--token-losses"})).find("token_losses")->items();
  };
  const JsonValue::Array one = losses_of({"--ids", "5 17 2 900 31 44 8"});
  double sum = 0;
  for (std::size_t i = 0; i < 6; ++i) sum += counts[i + 1] != 0 ? one.at(i).as_number() : 0;
  const JsonValue report = json({"--data", place_ / "chat", "--tokenizer", "gpt2"});
  EXPECT_EQ(report.find("tokens")->as_integer(), 3);
  EXPECT_NEAR(number(report, "loss"), sum / 3, 1e-6);
  EXPECT_NEAR(number(report, "ppl"), std::exp(sum / 3), 1e-5 * std::exp(sum / 3));
  // Windows of two targets, and documents by themselves, take the bits of their own tokens.
  const JsonValue windows = json({"--data", place_ / "chat", "--sequence", "2"});
  const JsonValue::Array first = losses_of({"--ids", "5 17 2"}), second = losses_of({"--ids", "2 900 31"}),
                         third = losses_of({"--ids", "31 44 8"});
  EXPECT_NEAR(number(windows, "loss") * 3, first[1].as_number() + second[0].as_number() + third[1].as_number(), 1e-5);
  const JsonValue apart = json({"--data", place_ / "chat", "--per-document"});
  const JsonValue::Array& of_each = apart.find("documents")->items();
  EXPECT_EQ(of_each.at(0).find("tokens")->as_integer(), 1);
  EXPECT_EQ(of_each.at(1).find("tokens")->as_integer(), 1);
  write_masked_dataset(place_ / "chat", documents, std::vector<std::uint8_t>(7, 0), 50257);
  expect_parts(succeeded(eval({"--data", place_ / "chat"})).err,
               {"none of its targets counts (PREFIX.mask)", "trident data inspect"});
  remove_file(place_ / "chat.mask");
  expect_one_line(eval({"--data", place_ / "chat"}), 65, {"chat.trident.json: names ", "is missing; put it back"});
}

TEST_F(Eval, SeesEachDocumentAloneAndSaysInTextWhatDoesNotCount) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> ids{"--ids", "5 17 2 900 31 44 8", "--token-losses"}, eod{"--set", "data.eod=900", "--set"};
  const auto losses = [](const JsonValue& report) { return report.find("token_losses")->items(); };
  const std::vector<std::string> apart{"data.reset_attention_mask=true", "--set", "data.reset_position_ids=true"};
  const JsonValue::Array all = losses(json(ids)), of_two = losses(json(plus(plus(ids, eod), apart))),
                         alone = losses(json({"--ids", "31 44 8", "--token-losses"}));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(of_two.at(4 + i).as_number(), alone.at(i).as_number(), 1e-5) << i;
  EXPECT_NE(of_two[4].as_number(), all.at(4).as_number());
  expect_parts(succeeded(eval(plus(plus(ids, eod), {"data.eod_mask_loss=true"}))).out,
               {"  5 tokens\n", "  token 4          does not count\n",
                fmt::format("  token 5          {:.6f}\n", all[4].as_number())});
  const ProgramOutcome none = succeeded(eval(plus({"--ids", "900 900 900"}, plus(eod, {"data.eod_mask_loss=true"}))));
  expect_parts(none.out, {"no token to predict"});
  expect_parts(none.err, {"no loss of \"ids\": none of its targets counts (data.eod_mask_loss)"});
  EXPECT_EQ(none.err.find("have no text"), std::string::npos) << none.err;
}

TEST_F(Eval, DocumentsAndNamedSets) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string lines = write("docs.jsonl", "{\"text\": \"One two three.\"}\n{\"text\": \"\"}\n{\"text\": \"Four five.\"}\n");
  ASSERT_EQ(run_program({"data", "prepare", "--input", lines, "--output", place_ / "docs", "--tokenizer", "gpt2"}).exit_code, 0);
  const JsonValue report = json({"--data", "a=" + (place_ / "docs"), "--data", "b=" + (place_ / "valid"), "--per-document"});
  const JsonValue& a = *report.find("sets")->find("a");
  std::int64_t tokens = 0;
  for (const JsonValue& document : a.find("documents")->items()) tokens += document.find("tokens")->as_integer();
  EXPECT_EQ(a.find("tokens")->as_integer(), tokens);
  // Without --data the run's validation data are evaluated; of its training data a warning says so.
  const std::vector<std::string> split{"data.train=" + (place_ / "docs"), "data.split=50,50", "run.dir=" + (place_ / "split"),
                                       "batch.sequence=2", "batch.micro=1", "batch.global=2", "eval.every=0"};
  ASSERT_EQ(train(split).exit_code, 0) << train(split).err;
  const std::vector<std::string> ckpt{"eval", "--ckpt", place_ / "split"};
  expect_parts(succeeded(run_program(plus(ckpt, {"--data", place_ / "docs"}))).err,
               {"the run trains on 2 of its 3 documents; leave out --data for its validation data alone"});
  ASSERT_EQ(run_program({"data", "prepare", "--input", lines, "--output", place_ / "again", "--tokenizer", "gpt2"}).exit_code, 0);
  expect_parts(succeeded(run_program(plus(ckpt, {"--data", place_ / "again"}))).err,
               {fmt::format("{} was made of {}, as {} was, on which the run", place_ / "again", lines, place_ / "docs")});
  EXPECT_EQ(succeeded(run_program(plus(ckpt, {"--per-document", "--json"}))).err.find("warning: "), std::string::npos);
  EXPECT_EQ(report.find("tokens")->as_integer(), tokens + report.find("sets")->find("b")->find("tokens")->as_integer());
}

TEST_F(Eval, ChoicesAreJudgedByTheirLikelihoods) {
  ASSERT_EQ(train().exit_code, 0);
  const JsonValue one = json({"--ids", "5 17 2", "--token-losses"}), two = json({"--ids", "5 17 900", "--token-losses"});
  const bool first = one.find("token_losses")->items().back().as_number() < two.find("token_losses")->items().back().as_number();
  const auto file = [&](int answer) {
    return write("q.jsonl", fmt::format("{{\"context\": [5, 17], \"choices\": [[2], [900]], \"answer\": {}}}\n", answer));
  };
  EXPECT_EQ(number(json({"--choices", file(first ? 0 : 1)}), "acc"), 1.0);
  EXPECT_EQ(number(json({"--choices", file(first ? 1 : 0)}), "acc"), 0.0);
  const std::string text =
      write("t.jsonl", "{\"context\": \"The sky is\", \"choices\": [\"blue\", \"a very long wrong answer\"], \"answer\": 0}\n");
  const JsonValue report = json({"--choices", text, "--tokenizer", "gpt2"});
  EXPECT_EQ(number(report, "acc"), 1.0) << "a sum over fewer tokens of a model that knows nothing";
  EXPECT_FALSE(report.find("acc_norm")->is_null());
}

// Files of other programs have more keys than are read, and a text to be scored may be a line with one choice.
TEST_F(Eval, ChoicesMayHaveOtherKeysOrStandAlone) {
  ASSERT_EQ(train().exit_code, 0);
  const auto said = [&](const std::string& line) {
    return json({"--per-question", "--choices", write("q.jsonl", line)});
  };
  const std::string plain = R"({"context": [5, 17], "choices": [[2], [900]], "answer": 0)";
  const JsonValue more = said(plain + R"(, "id": "q-7", "category": {"a": [1]}, "answers": null})");
  EXPECT_EQ(to_json_text(more), to_json_text(said(plain + "}")));
  const JsonValue one = said(R"({"context": [5, 17], "choices": [[2]], "answer": 0})");
  EXPECT_EQ(number(one, "acc"), 1.0);
  EXPECT_NEAR(one.find("answers")->items()[0].find("log_likelihoods")->items()[0].as_number(),
              -json({"--ids", "5 17 2", "--token-losses"}).find("token_losses")->items().back().as_number(), 1e-6);
}

// Tensor ranks share out the windows that there are, padded, and no default sequence.
TEST_F(Eval, SequenceParallelTakesAnySequence) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> shared{"--set", "parallel=2TP", "--set", "parallel.sequence_parallel=true"};
  const std::vector<std::string> ids{"--ids", "5 17 2 900 31 44 8 5 3 2", "--sequence", "7"};
  const double loss = number(json(ids), "loss");
  EXPECT_NEAR(number(json(plus(ids, shared)), "loss"), loss, 1e-6 * loss);
  const std::vector<std::string> odd{"--set", "batch.sequence=31"};
  EXPECT_NEAR(number(json(plus(plus(ids, shared), odd)), "loss"), loss, 1e-6 * loss);
  const std::vector<std::string> data{"--data", place_ / "valid", "--sequence", "63"};
  EXPECT_NEAR(number(json(plus(data, shared)), "loss"), number(json(data), "loss"), 1e-5);
  const std::vector<std::string> three{"--set", "parallel=4TP", "--set", "parallel.sequence_parallel=true", "--set",
                                       "model.max_position_embeddings=63"};
  expect_one_line(eval(plus(data, three)), 64, {"--sequence = 63", "63 positions", "at most 60"});
}

TEST_F(Eval, WhatCannotBeIsRefused) {
  ASSERT_EQ(train().exit_code, 0);
  expect_one_line(eval({}), 64, {"nothing to evaluate", "no validation data", "--data"});
  expect_one_line(eval({"--hf", place_ / "run", "--ids", "5 6"}), 64, {"--ckpt", "--hf"});
  expect_one_line(run_program({"eval", "--ids", "5 6"}), 64, {"--ckpt", "--hf"});
  expect_one_line(run_program({"eval", "--hf", place_ / "run/ckpt", "--ids", "5 6"}),
                  65, {"--hf = ", "holds checkpoints", "--ckpt"});
  expect_one_line(run_program({"eval", "--hf", place_ / "run", "--ids", "5 6"}), 65, {"--hf = ", "holds checkpoints", "--ckpt"});
  expect_one_line(eval({"--ids", "5 x"}), 64, {"--ids", "\"x\" is no token id"});
  expect_one_line(eval({"--ids", "5 50257"}), 64, {"--ids: token 50257", "0 .. 50256"});
  expect_one_line(eval({"--ids", "5"}), 64, {"--ids: 1 given"});
  expect_one_line(eval({"--ids", "5 6", "--sequence", "65"}), 64, {"--sequence = 65", "64 positions"});
  expect_one_line(eval({"--ids", "5 6", "--stride", "33"}), 64, {"--stride = 33"});
  expect_one_line(eval({"--data", place_ / "none"}), 65, {"none.idx"});
  // Flags that would have no effect are refused.
  expect_one_line(eval({"--ids", "5 6", "--per-question"}), 64, {"--per-question", "--choices"});
  expect_one_line(eval({"--ids", "5 6", "--delimiter", "x"}), 64, {"--delimiter", "--choices"});
  expect_one_line(eval({"--ids", "5 6", "--per-document"}), 64, {"--per-document", "--data"});
  expect_one_line(eval({"--choices", place_ / "c.jsonl", "--stride", "4"}), 64, {"or leave --stride out"});
  expect_one_line(eval({"--ids", "5 6", "--set", "optimizer.lr=1"}), 64, {"--set optimizer.lr=1", "nothing is trained"});
  expect_one_line(eval({"--ids", "5 6", "--set", "batch.global=8"}), 64, {"--set batch.global=8", "nothing is trained"});
  expect_one_line(eval({"--ids", "5 6", "--set", "run.epochs=2"}), 64, {"--set run.epochs=2", "nothing is trained"});
  expect_one_line(run_program({"eval", "--ckpt", place_ / "nowhere", "--ids", "5 6"}), 65, {"--ckpt", "nowhere: no such folder"});
  const auto choices = [&](const std::string& lines) {
    return eval({"--tokenizer", "gpt2", "--choices", write("bad.jsonl", lines)});
  };
  const std::string good = "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n";
  expect_one_line(choices(""), 65, {"bad.jsonl", "no question"});
  expect_one_line(choices(good + "[1]\n"), 65, {"bad.jsonl:2", "is a list"});
  expect_one_line(choices(good + "{\"context\": \"a\""), 65, {"bad.jsonl:2"});
  expect_one_line(choices("{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}"), 65, {"bad.jsonl:1", "has no answer"});
  expect_one_line(choices("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}"), 65, {"answer = 2", "0 to 1"});
  expect_one_line(choices("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"b\"}"), 65, {"answer is a string"});
  expect_one_line(choices("{\"context\": \"a\", \"choices\": [], \"answer\": 0}"), 65, {"choices is empty", "one or more"});
  expect_one_line(choices("{\"context\": \"a\", \"choices\": [\"b\", 7], \"answer\": 0}"), 65, {"choices[1]"});
  expect_one_line(choices("{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}"), 65, {"choices[1] is empty"});
  expect_one_line(choices("{\"context\": [5], \"choices\": [[1], [50257]], \"answer\": 0}"), 65, {"choices[1]", "50257"});
  expect_one_line(eval({"--set", "data.tokenizer=null", "--choices", write("text.jsonl", good)}), 64,
                  {"text.jsonl:1", "--tokenizer"});
}

// The folder's own logits (scripts/oracle) say what each token's loss is.
struct Folder {
  explicit Folder(const std::string& model) {
    const std::string golden = std::string(TRIDENT_SOURCE_DIR "/tests/model/goldens/") + model + "/";
    std::filesystem::create_symlink(golden + "config.json", place / "config.json");
    if (model.starts_with("families/")) {
      read_family(golden);
      return;
    }
    std::filesystem::create_symlink(golden + "weights.safetensors", place / "model.safetensors");
    const test::TensorMap batch = test::read_safetensors(golden + "batch.safetensors");
    const test::TensorMap forward = test::read_safetensors(golden + "forward.safetensors");
    tokens = batch.at("tokens").values<std::int64_t>();
    targets = batch.at("targets").values<std::int64_t>();
    logits = forward.at("logits").values<float>();
    sequence = forward.at("logits").shape.at(1);
    vocab_size = forward.at("logits").shape.at(2);
  }
  void read_family(const std::string& golden) {
    std::filesystem::create_symlink(golden + "model.safetensors", place / "model.safetensors");
    const test::TensorMap oracle = test::read_safetensors(golden + "oracle.safetensors");
    const std::vector<std::int32_t> stream = oracle.at("stream").values<std::int32_t>();
    logits = oracle.at("logits").values<float>();
    sequence = oracle.at("logits").shape.at(1);
    vocab_size = oracle.at("logits").shape.at(2);
    for (std::int64_t i = 0; i < 2 * (sequence + 1); ++i) {
      const std::int32_t id = stream.at(static_cast<std::size_t>(i));
      if (i % (sequence + 1) < sequence) tokens.push_back(id);
      if (i % (sequence + 1) > 0) targets.push_back(id);
    }
  }

  // Returns the --ids that have the tokens of sample 0 or 1 as inputs.
  std::string ids(std::int64_t sample) const {
    const auto first = tokens.begin() + sample * sequence;
    return fmt::format("{} {}", fmt::join(first, first + sequence, " "),
                       targets.at(static_cast<std::size_t>((sample + 1) * sequence - 1)));
  }
  double nats(std::int64_t sample, std::int64_t position) const {
    const std::int64_t row = sample * sequence + position;
    const auto first = logits.begin() + row * vocab_size;
    double sum = 0;
    for (auto at = first; at != first + vocab_size; ++at) sum += std::exp(static_cast<double>(*at));
    return std::log(sum) - static_cast<double>(first[targets.at(static_cast<std::size_t>(row))]);
  }
  double token_accuracy(std::int64_t sample) const {
    std::int64_t correct = 0;
    for (std::int64_t row = sample * sequence; row < (sample + 1) * sequence; ++row) {
      const auto first = logits.begin() + row * vocab_size;
      correct += std::max_element(first, first + vocab_size) - first == targets.at(static_cast<std::size_t>(row)) ? 1 : 0;
    }
    return static_cast<double>(correct) / static_cast<double>(sequence);
  }
  JsonValue eval(std::int64_t sample, const std::vector<std::string>& more) const {
    const ProgramOutcome outcome =
        succeeded(run_program(plus({"eval", "--hf", place / ".", "--ids", ids(sample), "--token-losses", "--json"}, more)));
    return outcome.exit_code == 0 ? parse_json(outcome.out, "eval --json") : JsonValue();
  }

  TemporaryFolder place;
  std::vector<std::int64_t> tokens, targets;
  std::vector<float> logits;
  std::int64_t sequence = 0, vocab_size = 0;
};

TEST(EvalOfFolders, SaysWhatTransformersSays) {
  // The last four have windows that hide some of the text, and bounds of scores and logits.
  for (const std::string model : {"gpt2", "llama", "qwen3", "families/mistral_windowed", "families/qwen2_windowed",
                                  "families/qwen3_mixed", "families/llama_softcapped"}) {
    SCOPED_TRACE(model);
    const Folder folder(model);
    for (const std::int64_t sample : {0, 1}) {
      const JsonValue one = folder.eval(sample, {"--set", "precision.compute=fp32"});
      EXPECT_TRUE(one.find("step")->is_null());
      EXPECT_TRUE(one.find("bits_per_byte")->is_null()) << "nothing says who made its tokens";
      const JsonValue::Array& losses = one.find("token_losses")->items();
      ASSERT_EQ(std::ssize(losses), folder.sequence);
      for (std::int64_t s = 0; s < folder.sequence; ++s)
        EXPECT_NEAR(losses[static_cast<std::size_t>(s)].as_number(), folder.nats(sample, s), 1e-5) << "token " << s + 1;
      EXPECT_EQ(one.find("mean_token_accuracy")->as_number(), folder.token_accuracy(sample));
      const JsonValue stages =
          folder.eval(sample, {"--set", "precision.compute=fp32", "--set", "parallel=2DP x 2PP", "--set", "parallel.zero=zero3"});
      EXPECT_EQ(to_json_text(*stages.find("token_losses")), to_json_text(*one.find("token_losses")));
    }
  }
}

// Many sequences at once, where nobody says how many: the numbers of one at a time.
TEST(EvalOfFolders, TakesSequencesOfEightThousandTokensAtOnce) {
  const Folder folder("gpt2");
  const auto eval = [&](const std::vector<std::string>& more) {
    const ProgramOutcome outcome = succeeded(run_program(
        plus({"eval", "--hf", folder.place / ".", "--ids", folder.ids(0) + " " + folder.ids(1), "--sequence", "3", "--token-losses",
              "--json", "--set", "precision.compute=fp32"}, more)));
    return parse_json(outcome.out, "eval --json");
  };
  const JsonValue many = eval({}), one = eval({"--set", "batch.micro=1"});
  const JsonValue::Array &losses = many.find("token_losses")->items(), &expected = one.find("token_losses")->items();
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t t = 0; t < losses.size(); ++t)
    EXPECT_NEAR(losses[t].as_number(), expected[t].as_number(), 1e-6 * expected[t].as_number()) << t;
}

// Weights have no masters here: what is f32 in the folder becomes bf16 on its way into them.
TEST(EvalOfFolders, WeightsAreRounded) {
  const Folder folder("llama");
  const JsonValue exact = folder.eval(0, {"--set", "precision.compute=fp32"});
  const JsonValue rounded = folder.eval(0, {"--set", "precision.compute=bf16"});
  const double loss = exact.find("loss")->as_number();
  EXPECT_NE(rounded.find("loss")->as_number(), loss);
  EXPECT_NEAR(rounded.find("loss")->as_number(), loss, 0x1p-8 * loss) << "half an ulp of each weight";
}

// trident eval --choices beside lm-evaluation-harness (scripts/oracle/choices_goldens.py): its own questions, model and tokenizer.

const std::string kFolder = TRIDENT_SOURCE_DIR "/tests/app/goldens/choices/";

class ChoicesGoldens : public ::testing::TestWithParam<std::string> {
 protected:
  JsonValue golden_ = parse_json(read_file(kFolder + GetParam() + ".json"), "golden");

  JsonValue eval(const std::vector<std::string>& more = {}) const {
    const ProgramOutcome outcome =
        succeeded(run_program(plus({"eval", "--hf", kFolder, "--tokenizer", kFolder, "--choices", kFolder + GetParam() + ".jsonl",
                                    "--per-question", "--json", "--set", "precision.compute=fp32"},
                                   more)));
    if (outcome.exit_code != 0) throw std::runtime_error(outcome.err);
    return parse_json(outcome.out, "eval --json");
  }

  void expect_golden(const JsonValue& report) const {
    EXPECT_NEAR(report.find("acc")->as_number(), golden_.find("acc")->as_number(), 1e-12);
    EXPECT_NEAR(report.find("acc_norm")->as_number(), golden_.find("acc_norm")->as_number(), 1e-12);
    const JsonValue::Array &answers = report.find("answers")->items(), &expected = golden_.find("log_likelihoods")->items();
    ASSERT_EQ(answers.size(), expected.size());
    for (std::size_t q = 0; q < answers.size(); ++q) {
      const JsonValue::Array &found = answers[q].find("log_likelihoods")->items(), &wanted = expected[q].items();
      ASSERT_EQ(found.size(), wanted.size()) << "question " << q;
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i].as_number(), wanted[i].as_number(), 1e-5 * std::abs(wanted[i].as_number()))
            << "question " << q << ", choice " << i;
      // The harness says of each question whether it was right, so that two wrong ones do not make up for each other.
      const std::int64_t answer = answer_of(q);
      EXPECT_EQ(answers[q].find("chosen")->as_integer() == answer, golden_.find("acc_of")->items()[q].as_number() == 1.0) << q;
      EXPECT_EQ(answers[q].find("chosen_norm")->as_integer() == answer, golden_.find("acc_norm_of")->items()[q].as_number() == 1.0)
          << q;
    }
  }

 private:
  static std::int64_t answer_of(std::size_t question) {
    const std::string text = read_file(kFolder + GetParam() + ".jsonl");
    std::size_t begin = 0;
    for (; question > 0; --question) begin = text.find('\n', begin) + 1;
    return parse_json(text.substr(begin, text.find('\n', begin) - begin), "question").find("answer")->as_integer();
  }
};

INSTANTIATE_TEST_SUITE_P(Sets, ChoicesGoldens, ::testing::Values("usual", "spaces", "unicode", "long", "empty"),
                         [](const auto& info) { return info.param; });

TEST_P(ChoicesGoldens, LogLikelihoodsAccAndAccNormAreThoseOfTheHarness) { expect_golden(eval()); }

TEST_P(ChoicesGoldens, EveryLayoutAnswersThem) {
  const JsonValue one = eval();
  EXPECT_EQ(to_json_text(*eval({"--set", "parallel=3DP x 2PP", "--set", "parallel.zero=zero3"}).find("answers")),
            to_json_text(*one.find("answers")));
  expect_golden(eval({"--set", "parallel=1DP x 2PP x 2TP", "--set", "batch.micro=4"}));
}

// Sets that could not tell the rules from simpler ones would be no proof of them.
TEST(ChoicesSets, TellTheRulesApart) {
  int different = 0;
  for (const char* set : {"usual", "spaces", "unicode", "long", "empty"}) {
    const JsonValue golden = parse_json(read_file(kFolder + set + ".json"), "golden");
    different += golden.find("acc")->as_number() != golden.find("acc_norm")->as_number();
  }
  EXPECT_GE(different, 3) << "dividing by lengths changes who is right";
}

}  // namespace
}  // namespace trident
