// Tests what trident convert, eval and generate do with Hugging Face folders that are like those that users have: dropout,
// tokenizers of other programs, values that are no numbers; and convert when it is stopped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/background_program.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

class FolderCommands : public ::testing::Test {
 protected:
  // A copy of a golden folder, with `change` made in its config.json.
  std::string folder(const std::string& family, const std::string& from, const std::string& to) const {
    const std::string golden = std::string(TRIDENT_SOURCE_DIR "/tests/model/goldens/families/") + family + "/";
    const std::string made = place_ / family;
    create_folder(made);
    write_file(made + "/config.json", replaced(read_file(golden + "config.json"), from, to));
    write_file(made + "/model.safetensors", read_file(golden + "model.safetensors"));
    return made;
  }
  static std::string said(const std::vector<std::string>& arguments) {
    const ProgramOutcome outcome = succeeded(run_program(plus(arguments, {"--set", "precision.compute=fp32"})));
    return outcome.out;
  }
  static JsonValue eval(const std::string& kind, const std::string& model, const std::vector<std::string>& more) {
    return parse_json(said(plus({"eval", kind, model, "--json"}, more)), "eval --json");
  }
  TemporaryFolder place_;
};

// Also from the run's own files, which have the folder's keys.
TEST_F(FolderCommands, UnknownKeysThatAreSwitchedOffAreNoHindrance) {
  const std::string hf =
      folder("llama", "{", R"({"use_sliding_window": false, "freeze": null, "moe_layers": [], "unsloth_fixed": true,
             "seq_length": 4096, "seq_len": 1, "tokenizer_type": "t", "chat_template": "c", "peft_version": "1",
             "name_or_path": "n",)");
  const std::vector<std::string> ids{"--ids", "5 17 2 9"}, prompt{"--prompt-ids", "5", "--greedy", "--max-new-tokens", "3"};
  const std::string ckpt = place_ / "ckpt";
  const double loss = eval("--hf", hf, ids).find("loss")->as_number();
  said(plus({"generate", "--hf", hf}, prompt));
  ASSERT_EQ(run_program({"convert", "--from", "hf", hf, "--to", "ckpt", ckpt}).exit_code, 0);
  EXPECT_EQ(eval("--ckpt", ckpt, ids).find("loss")->as_number(), loss);
  for (const std::string from : {"init_from", "hf_config"}) {
    write_file(place_ / "c.json", R"({"run": {"dir": "r", "steps": 1}, "batch": {"global": 1, "micro": 1, "sequence": 8},
                                      "data": {"train": "none", "tokenizer": null}, "model": {")" + from + "\": \"" + hf + "\"}}");
    write_file(place_ / "printed.json", said({"train", "--config", place_ / "c.json", "--print-config"}));
    said({"train", "--config", place_ / "printed.json", "--print-config"});
    expect_one_line(run_program({"train", "--config", place_ / "printed.json", "--set", "model.seq_length=16"}), 64,
                    {"model.seq_length", "did you mean batch.sequence?"});
  }
  expect_one_line(run_program({"eval", "--hf", folder("gpt2", "{", R"({"use_alibi": true,)"), "--ids", "5"}), 64,
                  {"config.json: use_alibi = true: unknown key"});
}

// As the hub's GPT-2 says it. Nothing is trained here, so that it does not matter.
TEST_F(FolderCommands, DropoutOfAttentionDoesNotMatterWhereNothingIsTrained) {
  const std::string plain = folder("gpt2", "\"attn_pdrop\": 0.0", "\"attn_pdrop\": 0.0");
  fs::rename(plain, place_ / "plain");
  const std::string dropping = folder("gpt2", "\"attn_pdrop\": 0.0", "\"attn_pdrop\": 0.1"), ckpt = place_ / "ckpt";
  const std::vector<std::string> ids{"--ids", "5 17 2 9"}, prompt{"--prompt-ids", "5 17 2", "--greedy", "--print-ids"};
  const double loss = eval("--hf", place_ / "plain", ids).find("loss")->as_number();
  const std::string text = said(plus({"generate", "--hf", place_ / "plain", "--max-new-tokens", "6"}, prompt));
  EXPECT_EQ(eval("--hf", dropping, ids).find("loss")->as_number(), loss);
  EXPECT_EQ(said(plus({"generate", "--hf", dropping, "--max-new-tokens", "6"}, prompt)), text);
  succeeded(run_program({"convert", "--from", "hf", dropping, "--to", "ckpt", ckpt}));
  EXPECT_EQ(eval("--ckpt", ckpt, ids).find("loss")->as_number(), loss);
  EXPECT_EQ(said(plus({"generate", "--ckpt", ckpt, "--max-new-tokens", "6", "--ignore-end"}, prompt)), text);
}

// A checkpoint that is made of a folder says all that the folder says: its tokenizer and its end token were carried along.
TEST_F(FolderCommands, AConvertedCheckpointHasTheFoldersTokenizer) {
  const std::string golden = TRIDENT_SOURCE_DIR "/tests/app/goldens/choices", hf = place_ / "hf", ckpt = place_ / "ckpt";
  create_folder(hf);
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors", "vocab.json", "merges.txt"})
    write_file(hf + "/" + name, read_file(golden + "/" + name));
  // Greedy, the first token that the model says is to be an end: none that it has by itself.
  const std::vector<std::string> prompt{"--prompt", "the sky", "--greedy", "--max-new-tokens", "6", "--json"};
  const JsonValue free = parse_json(said(plus({"generate", "--hf", hf, "--ignore-end"}, prompt)), "generate --json");
  write_file(hf + "/generation_config.json",
             fmt::format("{{\"eos_token_id\": [{}]}}", to_json_text(free.find("ids")->items()[2])));
  ASSERT_EQ(run_program({"convert", "--from", "hf", hf, "--to", "ckpt", ckpt}).exit_code, 0);
  const std::string text = said(plus({"generate", "--hf", hf}, prompt));
  EXPECT_EQ(parse_json(text, "generate --json").find("end")->as_string(), "end");
  const std::string of_checkpoint = said(plus({"generate", "--ckpt", ckpt}, prompt));
  const auto behind_the_model = [](const std::string& json) { return json.substr(json.find("\"prompt\"")); };
  EXPECT_EQ(behind_the_model(of_checkpoint), behind_the_model(text));
  const std::vector<std::string> asked{"--choices", golden + "/usual.jsonl", "--ids", "5 17 2 9"};
  const JsonValue of_hf = eval("--hf", hf, asked), of_ckpt = eval("--ckpt", ckpt, asked);
  EXPECT_FALSE(of_hf.find("acc_norm")->is_null());
  for (const char* key : {"loss", "bits_per_byte", "acc", "acc_norm"})
    EXPECT_EQ(to_json_text(*of_ckpt.find(key)), to_json_text(*of_hf.find(key))) << key;
  EXPECT_GT(of_hf.find("bits_per_byte")->as_number(), 0);
  EXPECT_EQ(to_json_text(*eval("--hf", hf, plus(asked, {"--tokenizer", hf})).find("bits_per_byte")),
            to_json_text(*of_hf.find("bits_per_byte")));

  // Where neither configuration names its id, the tokenizer's end of a document ends a text.
  write_file(hf + "/config.json", replaced(read_file(golden + "/config.json"), "  \"eos_token_id\": 300,\n", ""));
  write_file(hf + "/generation_config.json", "{}");
  const JsonValue vocabulary = parse_json(read_file(hf + "/vocab.json"), "vocab.json");
  const std::int64_t third = free.find("ids")->items()[2].as_integer();
  const auto named = std::ranges::find_if(vocabulary.members(), [&](const JsonMember& m) { return m.value.as_integer() == third; });
  write_file(hf + "/tokenizer_config.json", fmt::format("{{\"eos_token\": {}}}", to_json_text(JsonValue(named->key))));
  EXPECT_EQ(parse_json(said(plus({"generate", "--hf", hf}, prompt)), "generate --json").find("end")->as_string(), "end");

  // Ids need no tokenizer; texts do, and the one that cannot be read is named.
  fs::remove(hf + "/merges.txt"), fs::remove(hf + "/vocab.json");
  write_file(hf + "/tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
  EXPECT_TRUE(eval("--hf", hf, {"--ids", "5 17 2 9"}).find("bits_per_byte")->is_null());
  const std::string why = run_program({"eval", "--hf", hf, "--ids", "5 17 2 9", "--json"}).err;
  expect_parts(why, {"no bits per byte without a tokenizer (" + hf + "/tokenizer.json: "});
  expect_one_line(run_program({"generate", "--hf", hf, "--prompt", "a"}), 65, {"tokenizer.json", "--tokenizer"});
  expect_one_line(run_program({"eval", "--hf", hf, "--choices", golden + "/usual.jsonl"}), 64,
                  {"usual.jsonl:1", "tokenizer.json", "--tokenizer"});
}

// config.json does not say whose tokenizer a model has, and a wrong one makes wrong numbers.
TEST_F(FolderCommands, AConvertedCheckpointNamesNoTokenizer) {
  const std::string hf = folder("llama", "{", "{"), ckpt = place_ / "ckpt";
  ASSERT_EQ(run_program({"convert", "--from", "hf", hf, "--to", "ckpt", ckpt}).exit_code, 0);
  EXPECT_TRUE(eval("--ckpt", ckpt, {"--ids", "5 17 2"}).find("bits_per_byte")->is_null());
  EXPECT_FALSE(eval("--ckpt", ckpt, {"--ids", "5 17 2", "--tokenizer", "gpt2"}).find("bits_per_byte")->is_null());
  const std::string why = run_program({"eval", "--ckpt", ckpt, "--ids", "5 17 2"}).err;
  expect_parts(why, {"no bits per byte without a tokenizer (", "/hf has none: no tokenizer.json, ", "; give --tokenizer"});
  EXPECT_EQ(said({"generate", "--ckpt", ckpt, "--prompt-ids", "5", "--greedy", "--max-new-tokens", "3"}),
            said({"generate", "--ckpt", ckpt, "--prompt-ids", "5", "--greedy", "--max-new-tokens", "3", "--print-ids"}));
  expect_one_line(run_program({"generate", "--ckpt", ckpt, "--prompt", "a"}), 64, {"names no tokenizer", "--tokenizer"});
}

// data.tokenizer cannot be derived from the vocabulary, and the record beside the data has it.
TEST_F(FolderCommands, TheTokenizerThatMadeTheDataIsFound) {
  const std::string data = place_ / "mine", run = place_ / "run", tokenizer = place_ / "tok", hf = place_ / "hf";
  fs::create_directories(tokenizer);
  for (const char* const name : {"/vocab.json", "/merges.txt"})
    fs::copy(TRIDENT_SOURCE_DIR "/data/gpt2" + std::string(name), tokenizer);
  write_file(place_ / "mine.txt", std::string(400, 'a'));
  succeeded(run_program({"data", "prepare", "--input", place_ / "mine.txt", "--tokenizer", tokenizer, "--output", data}));
  write_file(place_ / "mine.json", R"({"model": {"model_type": "llama", "vocab_size": 50260, "hidden_size": 16,
      "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 32},
      "batch": {"global": 1, "sequence": 16}, "optimizer": {"lr": 0.001},
      "eval": {"every": 1, "steps": 1, "samples": "a", "sample_tokens": 8},
      "run": {"steps": 1, "dir": ")" + run +
                                       R"("}, "data": {"train": ")" + data + R"(", "valid": ")" + data + "\"}}");
  said({"train", "--config", place_ / "mine.json"});
  EXPECT_TRUE(
      parse_json(read_file(run + "/config.resolved.json"), "c", {.max_depth = 9}).find("data")->find("tokenizer")->is_null());
  expect_parts(read_file(run + "/samples.jsonl"), {"\"text\":"});
  const std::string evals = read_file(run + "/eval.jsonl");
  EXPECT_TRUE(parse_json(evals.substr(0, evals.find('\n')), "eval.jsonl").find("valid_bits_per_byte")->is_number()) << evals;
  EXPECT_TRUE(eval("--ckpt", run, {"--ids", "5 17 2"}).find("bits_per_byte")->is_number());
  const std::vector<std::string> prompt{"generate", "--ckpt", run, "--prompt", "a", "--max-new-tokens", "8"};
  EXPECT_EQ(said(prompt), said(plus(prompt, {"--tokenizer", tokenizer})));
  succeeded(run_program({"convert", "--from", "ckpt", run, "--to", "hf", hf}));
  EXPECT_EQ(read_file(hf + "/vocab.json"), read_file(tokenizer + "/vocab.json"));
  succeeded(run_program({"data", "prepare", "--input", place_ / "mine.txt", "--tokenizer", "bytes", "--output", place_ / "b"}));
  said({"train", "--config", place_ / "mine.json", "--set", "data.train=" + (place_ / "b"), "--set", "data.valid=" + (place_ / "b"),
        "--set", "run.dir=" + (place_ / "of_bytes")});
  succeeded(run_program({"convert", "--from", "ckpt", place_ / "of_bytes", "--to", "hf", place_ / "hf_bytes"}));
  const std::vector<std::string> more{"--prompt", "ab", "--greedy", "--max-new-tokens", "8", "--print-ids"};
  EXPECT_EQ(said(plus({"generate", "--hf", place_ / "hf_bytes"}, more)),
            said(plus({"generate", "--ckpt", place_ / "of_bytes"}, more)));
  // Its end of a document need not be what --eod wrote.
  expect_one_line(run_program({"train", "--config", place_ / "mine.json", "--set", "run.dir=" + run + "1", "--set",
                               "data.reset_attention_mask=true"}),
                  64, {"data.eod = null: ", "there is no tokenizer; give its id"});
  // Another of that name is not the data's.
  fs::rename(tokenizer + "/merges.txt", place_ / "merges.txt");
  expect_one_line(run_program(prompt), 64, {"its data were made with --tokenizer " + tokenizer});
  expect_one_line(run_program({"train", "--config", place_ / "mine.json", "--set", "run.dir=" + run + "2"}), 64,
                  {"eval.samples: data.tokenizer is \"auto\", ", "record names none that is still there, and texts need one"});
}

TEST_F(FolderCommands, ChoicesWithoutNumbersAreNotJudged) {
  const std::string hf = folder("llama", "{", "{"), file = place_ / "questions.jsonl";
  std::string weights = read_file(hf + "/model.safetensors");
  const float nan = __builtin_nanf("");
  std::memcpy(weights.data() + weights.size() - sizeof nan, &nan, sizeof nan);
  write_file(file, "{\"context\": [1], \"choices\": [[2], [3]], \"answer\": 0}\n");
  EXPECT_EQ(eval("--hf", hf, {"--choices", file}).find("questions")->as_integer(), 1);
  write_file(hf + "/model.safetensors", weights);
  const ProgramOutcome outcome = run_program({"eval", "--hf", hf, "--choices", file, "--json"});
  EXPECT_EQ(outcome.exit_code, 65) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.out, "");
  expect_parts(outcome.err, {"questions.jsonl: question 1: a choice's log-likelihood is no finite number"});
  const ProgramOutcome loss = run_program({"eval", "--hf", hf, "--ids", "1 2 3", "--json"});
  EXPECT_EQ(loss.exit_code, 65) << loss.out << loss.err;
  EXPECT_EQ(loss.out, "");
  expect_parts(loss.err, {"llama: the loss of \"ids\" is no finite number"});
  write_file(file, "{\"context\": [1], \"choices\": [[2], [3]], \"answer\": 1.0}\n");
  expect_one_line(run_program({"eval", "--hf", hf, "--choices", file}), 65, {"questions.jsonl:1", "answer is 1.0", "whole number"});
}

TEST_F(FolderCommands, AWidthOfHeadsMustBeOne) {
  const std::string hf = folder("qwen3", "\"head_dim\": 8", "\"head_dim\": 0");
  expect_one_line(run_program({"convert", "--from", "hf", hf, "--to", "ckpt", place_ / "x"}), 64, {"head_dim = 0", "at least 1"});
}

TEST_F(FolderCommands, FoldersHaveNames) {
  const std::string hf = folder("llama", "{", "{");
  expect_one_line(run_program({"convert", "--from", "hf", hf, "--to", "ckpt", ""}), 64, {"--to ckpt \"\"", "names no folder"});
  expect_one_line(run_program({"convert", "--from", "hf", "", "--to", "ckpt", "x"}), 64, {"--from hf \"\"", "names no folder"});
}

// The largest f32 has no neighbour in the range of the 16-bit formats.
TEST_F(FolderCommands, ValuesBeyondARangeAreNamed) {
  const std::string hf = folder("llama", "{", "{");
  std::string weights = read_file(hf + "/model.safetensors");
  const float largest = std::numeric_limits<float>::max();
  std::memcpy(weights.data() + weights.size() - sizeof largest, &largest, sizeof largest);
  write_file(hf + "/model.safetensors", weights);
  for (const std::string dtype : {"bf16", "fp16"}) {
    const ProgramOutcome outcome =
        succeeded(run_program({"convert", "--from", "hf", hf, "--to", "ckpt", place_ / dtype, "--dtype", dtype}));
    const std::string range = "beyond the range of " + std::string(dtype == "fp16" ? "f16" : "bf16");
    EXPECT_NE((outcome.out + outcome.err).find(range), std::string::npos) << outcome.out << outcome.err;
  }
  const ProgramOutcome kept = run_program({"convert", "--from", "hf", hf, "--to", "ckpt", place_ / "fp32"});
  EXPECT_EQ((kept.out + kept.err).find("beyond"), std::string::npos) << kept.out << kept.err;
}

// Where a folder of the other kind is named, or a run's, the message says what to write.
TEST_F(FolderCommands, FoldersOfTheOtherKindAreNamed) {
  const std::string hf = folder("llama", "{", "{"), run = place_ / "run";
  create_folder(run);
  EXPECT_EQ(run_program({"convert", "--from", "hf", hf, "--to", "ckpt", run + "/ckpt/step-00000000"}).exit_code, 0);
  const std::vector<std::string> ids{"--ids", "5 17 2"};
  for (const std::string name : {"step-00000001", "step-00000001/", "step-00000000.aside-1", "step-00000007.tmp-a"})
    expect_one_line(run_program({"convert", "--from", "hf", hf, "--to", "ckpt", run + "/ckpt/" + name}), 64,
                    {name + ": has the name of a checkpoint of step", "another name, such as step-00000000"});
  expect_one_line(run_program({"convert", "--from", "ckpt", run, "--to", "hf", run + "/ckpt/step-00000000"}), 64,
                  {"step-00000000: has the name of a checkpoint of step 0, which it is not; give it another name"});
  expect_one_line(run_program(plus({"eval", "--ckpt", hf}, ids)), 65, {"--ckpt = ", "is a Hugging Face folder", "--hf"});
  EXPECT_EQ(run_program(plus({"eval", "--ckpt", run}, ids)).exit_code, 0);
  expect_one_line(run_program(plus({"eval", "--hf", run + "/ckpt"}, ids)), 65, {"--hf = ", "holds checkpoints", "--ckpt"});
  fs::remove(hf + "/model.safetensors");
  write_file(hf + "/pytorch_model.bin", "x");
  expect_one_line(run_program(plus({"eval", "--hf", hf}, ids)), 65, {"pytorch_model.bin", "safetensors"});
}

// Longrope's angles are those of the sequence's own length, at every token: neither of what may come nor of its neighbours.
TEST_F(FolderCommands, LongropeTurnsByTheLengthThatASequenceHas) {
  const std::string hf = folder("phi3", "\"sliding_window\": 16", "\"sliding_window\": null");  // original context: 8
  const auto made = [&](const std::vector<std::string>& prompts, int tokens) {
    std::vector<std::string> words{"generate", "--hf", hf,         "--greedy",   "--ignore-end",
                                   "--json",   "--logprobs", "--max-new-tokens", std::to_string(tokens)};
    for (const std::string& prompt : prompts) words.insert(words.end(), {"--prompt-ids", prompt});
    const std::string out = said(words);
    return parse_json(out.substr(0, out.find('\n')), "generate --json");  // of the first
  };
  const JsonValue alone = made({"5 17 2 9 30"}, 10);
  const std::string longer = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33";
  const JsonValue beside = made({"5 17 2 9 30", longer}, 10);
  EXPECT_EQ(to_json_text(alone), to_json_text(beside));
  std::string prefix = "5 17 2 9 30";
  for (std::size_t i = 0; i < 10; ++i) {
    const JsonValue next = made({prefix}, 1);
    const std::int64_t id = alone.find("ids")->items()[i].as_integer();
    EXPECT_EQ(next.find("ids")->items()[0].as_integer(), id) << prefix;
    EXPECT_NEAR(next.find("logprobs")->items()[0].as_number(), alone.find("logprobs")->items()[i].as_number(), 1e-5) << prefix;
    prefix += " " + std::to_string(id);
  }
}

// Questions of many lengths, within the trained context of 10 tokens and beyond it, have the answers that each has alone, and text
// that of PyTorch.
TEST_F(FolderCommands, DynamicScalingTurnsEachWindowByItsOwnLength) {
  const std::string hf = folder("llama_dynamic", "{", "{");
  std::vector<std::string> lines;
  for (const std::int64_t n : {4, 20, 8, 10, 11, 2, 13, 20}) {
    std::string line = "{\"context\": [5";
    for (std::int64_t i = 1; i < n; ++i) line += fmt::format(", {}", (7 * i + n) % 53);
    lines.push_back(line + "], \"choices\": [[3], [40]], \"answer\": 0}\n");
  }
  const auto answers = [&](const std::string& text, const std::vector<std::string>& layout) {
    write_file(place_ / "questions.jsonl", text);
    return eval("--hf", hf, plus({"--choices", place_ / "questions.jsonl", "--per-question"}, layout)).find("answers")->items();
  };
  std::string all;
  std::vector<double> alone;
  for (const std::string& line : lines) {
    all += line;
    alone.push_back(answers(line, {})[0].find("log_likelihoods")->items()[0].as_number());
  }
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {},
           {"--set", "batch.micro=3"},
           {"--set", "parallel=2DP x 2PP", "--set", "batch.micro=2"},
           {"--set", "parallel=2TP", "--set", "parallel.sequence_parallel=true", "--set", "batch.micro=2"}}) {
    const JsonValue::Array together = answers(all, layout);
    ASSERT_EQ(together.size(), lines.size());
    for (std::size_t q = 0; q < lines.size(); ++q)
      EXPECT_NEAR(together[q].find("log_likelihoods")->items()[0].as_number(), alone[q], 1e-5) << lines[q];
  }
}

// As transformers does it for a window alone: neither the others of its batch nor --sequence decide. Folders whose lists are the
// same say what each length ought to give.
TEST_F(FolderCommands, LongropeTurnsEachWindowByItsOwnLength) {
  const std::string hf = folder("phi3", "\"sliding_window\": 16", "\"sliding_window\": null");  // original context: 8
  const std::string shorter = "      1.0,\n      1.25\n", longer = "      1.5,\n      4.0\n";
  const auto with_one_list = [&](const std::string& name, const std::string& from, const std::string& to) {
    const std::string made = place_ / name;
    fs::copy(hf, made);
    write_file(made + "/config.json", replaced(read_file(made + "/config.json"), from, to));
    return made;
  };
  const std::string short_alone = with_one_list("short", longer, shorter), long_alone = with_one_list("long", shorter, longer);

  const std::vector<std::int64_t> inputs{4, 20, 8, 9, 2, 13, 7};
  std::string lines;
  for (const std::int64_t n : inputs) {
    lines += "{\"context\": [5";
    for (std::int64_t i = 1; i < n; ++i) lines += fmt::format(", {}", (7 * i + n) % 53);
    lines += "], \"choices\": [[3], [40]], \"answer\": 0}\n";
  }
  write_file(place_ / "questions.jsonl", lines);
  const std::vector<std::string> asked{"--choices", place_ / "questions.jsonl", "--per-question"};
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {},
           {"--set", "batch.micro=3"},
           {"--set", "parallel=2DP x 2PP", "--set", "batch.micro=2"},
           {"--set", "parallel=2TP", "--set", "parallel.sequence_parallel=true", "--set", "batch.micro=2"}}) {
    const auto answers = [&](const std::string& of) {
      return eval("--hf", of, plus(asked, layout)).find("answers")->items();
    };
    const JsonValue::Array said = answers(hf), of_short = answers(short_alone), of_long = answers(long_alone);
    ASSERT_EQ(said.size(), inputs.size());
    for (std::size_t q = 0; q < inputs.size(); ++q) {
      EXPECT_EQ(to_json_text(said[q]), to_json_text((inputs[q] <= 8 ? of_short : of_long)[q])) << inputs[q] << " tokens";
      EXPECT_NE(to_json_text(of_short[q]), to_json_text(of_long[q])) << inputs[q] << " tokens";
    }
  }

  // The last window of a text may be short: inputs 0 to 15, and 16 to 18.
  const std::vector<std::string> text{"--ids", "5 17 2 9 30 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "--sequence", "16",
                                      "--token-losses"};
  const auto losses = [&](const std::string& of) { return eval("--hf", of, text).find("token_losses")->items(); };
  const JsonValue::Array said = losses(hf), of_short = losses(short_alone), of_long = losses(long_alone);
  ASSERT_EQ(said.size(), 19u);
  for (std::size_t i = 0; i < said.size(); ++i)
    EXPECT_EQ(said[i].as_number(), (i < 16 ? of_long : of_short)[i].as_number()) << i;
  EXPECT_NE(of_long.back().as_number(), of_short.back().as_number());
}

class StoppedConversion : public FolderCommands {
 protected:
  StoppedConversion() { make_large(); }

  // 192 MB of zeros, of which the disk has none.
  void make_large() {
    constexpr std::int64_t kVocabulary = 3'000'000, kHidden = 16, kFfn = 24;
    create_folder(large_);
    write_file(large_ + "/config.json", fmt::format(R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": {},
      "intermediate_size": {}, "num_hidden_layers": 1, "num_attention_heads": 2, "tie_word_embeddings": true}})",
                                                    kVocabulary, kHidden, kFfn));
    std::string header = "{";
    std::int64_t end = 0;
    const auto add = [&](const std::string& name, const std::string& shape, std::int64_t elements) {
      header += fmt::format("{}\"{}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", end == 0 ? "" : ",", name,
                            shape, end, end + elements * 4);
      end += elements * 4;
    };
    add("model.embed_tokens.weight", fmt::format("{},{}", kVocabulary, kHidden), kVocabulary * kHidden);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      add(fmt::format("model.layers.0.self_attn.{}.weight", name), "16,16", kHidden * kHidden);
    for (const char* name : {"gate_proj", "up_proj"})
      add(fmt::format("model.layers.0.mlp.{}.weight", name), "24,16", kHidden * kFfn);
    add("model.layers.0.mlp.down_proj.weight", "16,24", kHidden * kFfn);
    for (const char* name : {"model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm"})
      add(std::string(name) + ".weight", "16", kHidden);
    header += "}";
    std::string length(8, '\0');
    const std::uint64_t bytes = header.size();
    std::memcpy(length.data(), &bytes, sizeof bytes);
    write_file(large_ + "/model.safetensors", length + header);
    fs::resize_file(large_ + "/model.safetensors", 8 + header.size() + static_cast<std::uintmax_t>(end));
  }
  std::vector<std::string> words(const std::string& from) const {
    return {"convert", "--from", "hf", from, "--to", "ckpt", place_ / "out/ckpt"};
  }
  std::vector<std::string> made() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(place_ / "out", none)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  // Sends `signal` to a conversion that has begun to write. One that had ended before is made again.
  int stop_by(int signal, std::string* said) const {
    for (int tries = 0; tries < 10; ++tries) {
      BackgroundProgram program(words(large_));
      EXPECT_TRUE(within(60, [&] { return program.ended() || !made().empty(); }));
      ::kill(program.process(), signal);
      const int code = program.wait_to_end(60);
      *said = program.err();
      if (code != 0) return code;
      fs::remove_all(place_ / "out");
    }
    return 0;
  }
  std::string large_ = place_ / "large";
};

TEST_F(StoppedConversion, LeavesNothing) {
  for (const auto& [signal, name] : {std::pair{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}}) {
    std::string said;
    EXPECT_EQ(stop_by(signal, &said), 128 + signal) << said;
    EXPECT_EQ(said.rfind(std::string("trident: stopped by ") + name + ": nothing was written", 0), 0u) << said;
    EXPECT_EQ(made(), std::vector<std::string>{});
  }
}

TEST_F(StoppedConversion, WhatAKilledOneLeavesGoesWithTheNext) {
  std::string said;
  EXPECT_EQ(stop_by(SIGKILL, &said), 128 + SIGKILL);
  EXPECT_EQ(made().size(), 1u);
  create_folder(place_ / "out/ckpt.tmp-0123456789abcdef-mine");  // of another name
  ASSERT_EQ(run_program(words(folder("llama", "{", "{"))).exit_code, 0);
  EXPECT_EQ(made(), (std::vector<std::string>{"ckpt", "ckpt.tmp-0123456789abcdef-mine"}));
}

TEST_F(StoppedConversion, OneThatLivesKeepsItsFiles) {
  BackgroundProgram program(words(large_));
  std::vector<std::string> before;
  ASSERT_TRUE(within(60, [&] {
    before = made();
    return program.ended() || (!before.empty() && fs::exists(place_ / "out/" + before[0] + "/weights"));
  }));
  ::kill(program.process(), SIGSTOP);
  if (before == std::vector<std::string>{"ckpt"}) GTEST_SKIP() << "the conversion was over before it could be stopped";
  ASSERT_EQ(run_program(words(folder("llama", "{", "{"))).exit_code, 0);
  EXPECT_EQ(made(), (std::vector<std::string>{"ckpt", before.at(0)}));
  ::kill(program.process(), SIGCONT);
  EXPECT_EQ(program.wait_to_end(60), 64) << program.err();
  expect_parts(program.err(), {"is there already"});
  EXPECT_EQ(made(), std::vector<std::string>{"ckpt"});
}

}  // namespace
}  // namespace trident
