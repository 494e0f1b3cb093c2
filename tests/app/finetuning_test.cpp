// Fine-tuning as docs/finetuning.md has it, in small: 200 conversations, a Qwen2 of two layers with a tokenizer and a template of
// its own, packed samples, full and with adapters, out to PEFT's form and merged.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/log_text.h"

namespace trident {
namespace {

// Byte-level BPE without merges, and the control tokens of ChatML.
std::string byte_tokenizer(const std::vector<std::string>& more) {
  nlohmann::json vocab;
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
    std::string name;
    append_utf8(name, static_cast<char32_t>(printable ? b : next++));
    vocab[name] = b;
  }
  nlohmann::json added = nlohmann::json::array();
  for (const std::string& token : plus({"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, more))
    added.push_back({{"content", token}, {"id", 256 + added.size()}, {"special", true}});
  return nlohmann::json{{"added_tokens", added},
                        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                        {"decoder", {{"type", "ByteLevel"}}},
                        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

// Each conversation asks a verse's beginning and answers with all of the verse.
std::string conversations() {
  const std::string text = read_file(TRIDENT_SOURCE_DIR "/data/excerpt/train.txt");
  std::string lines;
  for (std::size_t at = 0, count = 0; count < 200;) {
    const std::size_t end = text.find('\n', at);
    if (end - at > 30 && end - at < 90) {
      const std::string verse = text.substr(at, end - at);
      lines += nlohmann::json{{"messages",
                               {{{"role", "user"}, {"content", verse.substr(0, 10)}}, {{"role", "assistant"}, {"content", verse}}}}}
                   .dump() +
               "\n";
      ++count;
    }
    at = end + 1;
  }
  return lines;
}

class FineTuning : public ::testing::Test {
 protected:
  // The program's standard output; the program ends with 0.
  static std::string said(const std::vector<std::string>& arguments) { return succeeded(run_program(arguments)).out; }
  // The folder of a model after one step, and what is asked of it.
  void SetUp() override {
    create_folder(place_ / "tokenizer");
    write_tokenizer("tokenizer");
    said({"data", "prepare", "--input", TRIDENT_SOURCE_DIR "/data/excerpt/valid.txt", "--tokenizer", place_ / "tokenizer",
          "--output", place_ / "text"});
    train("base_run", R"("steps": 1)", R"("model_type": "qwen2", "vocab_size": 259, "hidden_size": 32, "intermediate_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": true)",
          R"({"train": ")" + (place_ / "text") + R"("})", "");
    said({"convert", "--from", "ckpt", place_ / "base_run", "--to", "hf", place_ / "base"});
    write_tokenizer("base");
    write_file(place_ / "chats.jsonl", conversations());
    said({"data", "prepare", "--chat", "--input", place_ / "chats.jsonl", "--tokenizer", place_ / "base", "--output",
          place_ / "chats"});
    said({"data", "pack", place_ / "chats", "--sequence", "192", "--output", place_ / "packs"});
  }
  void write_tokenizer(const std::string& folder, const std::vector<std::string>& more = {}) const {
    write_file(place_ / (folder + "/tokenizer.json"), byte_tokenizer(more));
    write_file(place_ / (folder + "/tokenizer_config.json"),
               fmt::format(R"({{"eos_token": "{}"}})", more.empty() ? "<|im_end|>" : more.front()));
    write_file(place_ / (folder + "/chat_template.jinja"),
               "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>" +
                   fmt::format("{}", fmt::join(more, "")) +
                   "\n{% endfor %}"
               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  }
  std::vector<JsonValue> train(const std::string& run, const std::string& length, const std::string& model, const std::string& data,
                               const std::string& more) const {
    write_file(
        place_ / (run + ".json"),
        R"({"run": {"dir": ")" + (place_ / run) + R"(", )" + length + R"(}, "model": {)" + model +
            R"(}, "batch": {"global": 8, "micro": 2, "sequence": 192}, "precision": {"compute": "fp32"}, "optimizer": {"lr": 3e-3},
                   "lr_schedule": {"type": "constant", "warmup_steps": 0}, "parallel": {"data": 2, "zero": "zero2"},
                   "data": )" +
            data + R"(, "log": {"every": 1})" + more + "}");
    said({"train", "--config", place_ / (run + ".json")});
    return json_lines(read_file(place_ / (run + "/metrics.jsonl")));
  }
  std::vector<JsonValue> tune(const std::string& run, const std::string& more) const {
    return train(run, R"("epochs": 2)", R"("init_from": ")" + (place_ / "base") + "\"",
                 R"({"train": ")" + (place_ / "packs") + R"(", "samples": "packed"})", more);
  }
  bool is_warned(const std::string& run) const {
    return read_file(place_ / (run + "/run.log")).find("to which its ids mean other texts") != std::string::npos;
  }
  double loss_of(const std::vector<std::string>& model, const std::string& ids = "257 97 98 99 258 10 257") const {
    return parse_json(
               said(plus(plus({"eval"}, model), {"--ids", ids, "--json", "--set", "precision.compute=fp32"})),
               "eval")
        .find("loss")
        ->as_number();
  }
  JsonValue newest_manifest(const std::string& run) const {
    const std::string ckpt = place_ / (run + "/ckpt");
    return parse_json(read_file(fmt::format("{}/{}/manifest.json", ckpt, checkpoint_name(checkpoint_steps(ckpt).at(0)))), run);
  }
  static std::int64_t weight_bytes(const JsonValue& manifest) {
    std::int64_t bytes = 0;
    for (const JsonValue& file : manifest.find("files")->items())
      bytes += file.find("bytes")->as_integer() - file.find("table_bytes")->as_integer();
    return bytes;
  }
  // No tokenizer is looked for, of a folder or of a checkpoint, where there is to be none.
  void expect_no_tokenizer_by_null() const {
    for (const std::vector<std::string>& model : {std::vector{std::string("--hf"), place_ / "base"}, {"--ckpt", place_ / "lora"}}) {
      const std::vector<std::string> eval = plus(plus({"eval"}, model), {"--data", place_ / "chats"});
      expect_parts(succeeded(run_program(plus(eval, {"--set", "data.tokenizer=null"}))).err,
                   {"no bits per byte without a tokenizer (data.tokenizer is null)"});
      EXPECT_EQ(succeeded(run_program(eval)).err.find("no bits per byte"), std::string::npos);
    }
  }
  // One NaN in an adapter, a base or a checkpoint is named before the first step.
  void expect_whole_numbers_alone() const {
    const auto spoil = [&](const std::string& file) {
      std::string values = read_file(file);
      const std::string whole = values;
      for (const std::size_t at : {2, 1}) values[values.size() - at] = static_cast<char>(at == 2 ? 0xc0 : 0x7f);  // f32's last
      write_file(file, values);
      return whole;
    };
    const std::string adapter = place_ / "adapter/adapter_model.safetensors", base = place_ / "base/model.safetensors";
    for (const std::string& file : {adapter, base}) {
      const std::string whole = spoil(file);
      expect_one_line(run_program({"train", "--config", place_ / "lora.json", "--set", "run.dir=" + (place_ / "spoilt"), "--set",
                                   R"(adapter={"init_from": ")" + (place_ / "adapter") + "\"}"}),
                      65, {file + ": tensor \"", "\" has values that are no numbers, such as [", "take a copy that is sound"});
      if (file == base) {
        said({"convert", "--from", "hf", place_ / "base", "--to", "ckpt", place_ / "spoilt_ckpt"});
        expect_one_line(run_program({"train", "--config", place_ / "full.json", "--set", "run.dir=" + (place_ / "spoilt"), "--set",
                                     "model.init_from=" + (place_ / "spoilt_ckpt")}),
                        65, {place_ / "spoilt_ckpt", ": tensor \"model.norm.weight\" has values that are no numbers or infinite"});
      }
      write_file(file, whole);
    }
  }
  // A run's samples end where generate ends: here each token is an end by the folder's word.
  void expect_samples_end_as_the_folder_says() const {
    std::vector<int> all(259);
    std::iota(all.begin(), all.end(), 0);
    write_file(place_ / "base/generation_config.json", fmt::format(R"({{"eos_token_id": {}}})", all));
    const std::string packs = place_ / "packs";
    train("sampled", R"("steps": 1)", R"("init_from": ")" + (place_ / "base") + "\"",
          fmt::format(R"({{"train": "{0}", "valid": "{0}", "samples": "packed"}})", packs),
          R"(, "eval": {"every": 1, "steps": 1, "samples": "And God ", "sample_tokens": 4})");
    for (const JsonValue& sample : json_lines(read_file(place_ / "sampled/samples.jsonl")))
      EXPECT_EQ(sample.find("end")->as_string(), "end");
    std::filesystem::remove(place_ / "base/generation_config.json");
  }
  // To the model, ids of a tokenizer that took the place of its own mean other texts.
  void expect_swapped_tokenizers_are_told(const std::vector<std::string>& by_merged, const std::vector<std::string>& by_run) {
    const std::string name = place_ / "base";
    std::string swapped = read_file(name + "/tokenizer.json");
    for (const auto& [letter, id] : {std::pair{"\"a\":97", "\"a\":98"}, {"\"b\":98", "\"b\":97"}})
      swapped.replace(swapped.find(letter), 6, id);
    write_file(name + "/tokenizer.json", swapped);
    const std::vector<std::string> other{"warning: ", "the model learned ids of the tokenizer fnv1a64:", "--tokenizer " + name,
                                         "may mean other texts; put the files of that one back"};
    const std::vector<std::string> data{"--data", place_ / "chats"};
    expect_parts(succeeded(run_program(by_run)).err, other);
    expect_parts(succeeded(run_program({"eval", "--ckpt", place_ / "lora", "--ids", "97 98"})).err, other);
    for (const std::vector<std::string>& model : {std::vector<std::string>{"--ckpt", place_ / "lora"}, {"--hf", name}})
      expect_one_line(run_program(plus(plus({"eval"}, model), data)), 65,
                      {"chats.trident.json: was made by tokenizer", "the one in use is tokenizer",
                       "put the one that made the data back, which " + name + " no longer is"});
    expect_parts(said({"convert", "--from", "ckpt", place_ / "lora", "--to", "hf", place_ / "with_other"}), {other[0], other[1]});
    expect_parts(succeeded(run_program(plus(by_merged, {"--tokenizer", name}))).err, {other[0], other[3]});
  }
  TemporaryFolder place_;
};

// Tokens that the base lacks: a tokenizer of its own names them, and every answer ends with them.
class AddedTokens : public FineTuning {
 protected:
  void SetUp() override {
    FineTuning::SetUp();
    create_folder(place_ / "more");
    write_tokenizer("more", {"<|done|>", "<|next|>"});
    said({"data", "prepare", "--chat", "--input", place_ / "chats.jsonl", "--tokenizer", place_ / "more", "--output",
          place_ / "more_chats"});
    said({"data", "pack", place_ / "more_chats", "--sequence", "192", "--output", place_ / "more_packs"});
    write_file(place_ / "ask.json", R"([{"role": "user", "content": "And God "}])");
    write_file(place_ / "base/generation_config.json", R"({"eos_token_id": 258})");
  }
  ProgramOutcome start(const std::string& run, std::vector<std::string> settings, bool named = true) const {
    write_file(place_ / (run + ".json"),
               fmt::format(R"({{"run": {{"dir": "{0}/{1}", "steps": 6}}, "model": {{"init_from": "{0}/base"}},
                   "batch": {{"global": 8, "micro": 2, "sequence": 192}}, "precision": {{"compute": "fp32"}}, "log": {{"every": 1}},
                   "optimizer": {{"lr": 1e-2}}, "parallel": {{"data": 2, "tensor": 2, "zero": "zero2"}},
                   "data": {{"train": "{0}/more_packs", "samples": "packed", "tokenizer": {2}}}}})",
                           place_.path(), run, named ? fmt::format("\"{}\"", place_ / "more") : "null"));
    std::vector<std::string> arguments{"train", "--config", place_ / (run + ".json")};
    for (std::string& setting : settings) arguments.insert(arguments.end(), {"--set", std::move(setting)});
    return run_program(arguments);
  }
  // A folder of the new model: the data's tokenizer is beside it, and it counts the new tokens.
  void expect_whole_folder(const std::string& folder, double loss) const {
    EXPECT_EQ(parse_json(read_file(place_ / (folder + "/config.json")), folder).find("vocab_size")->as_integer(), 261);
    EXPECT_EQ(eos_of(folder + "/config.json"), "259");
    EXPECT_EQ(eos_of(folder + "/generation_config.json"), "[259,258]");
    for (const char* file : {"tokenizer.json", "chat_template.jinja"})
      EXPECT_EQ(read_file(place_ / (folder + "/" + file)), read_file(place_ / (std::string("more/") + file))) << folder << file;
    EXPECT_NEAR(loss_of_new({"--hf", place_ / folder}), loss, 1e-5 * loss);
    said({"generate", "--hf", place_ / folder, "--messages", place_ / "ask.json", "--max-new-tokens", "4", "--greedy"});
  }
  std::string eos_of(const std::string& file) const {
    return to_json_text(*parse_json(read_file(place_ / file), file).find("eos_token_id"));
  }
  double loss_of_new(const std::vector<std::string>& model) const { return loss_of(model, "257 97 98 258 259 260 10 257 259"); }
};

TEST_F(AddedTokens, GetRowsOnceAndGoOut) {
  const std::string said_first = succeeded(start("full", {"run.steps=3", "checkpoint.every=3"})).out;
  EXPECT_NE(said_first.find("model.vocab_size = 261: "), std::string::npos) << said_first;
  EXPECT_NE(said_first.find("2 rows added to model.embed_tokens.weight, each the mean of those"), std::string::npos) << said_first;
  const double after_three = loss_of_new({"--ckpt", place_ / "full"});
  const ProgramOutcome on = succeeded(start("full", {}));
  EXPECT_EQ(on.out.find("rows added"), std::string::npos) << on.out;
  const double after_six = loss_of_new({"--ckpt", place_ / "full"});
  EXPECT_LT(after_six, after_three);
  said({"convert", "--from", "ckpt", place_ / "full", "--to", "hf", place_ / "out"});
  expect_whole_folder("out", after_six);
  said({"generate", "--config", place_ / "full.json", "--messages", place_ / "ask.json", "--max-new-tokens", "1", "--greedy"});

  write_tokenizer("out");  // of fewer tokens than the folder has rows: none is added
  succeeded(start("spare", {"run.steps=1", "model.init_from=" + (place_ / "out")}));
  said({"convert", "--from", "ckpt", place_ / "spare", "--to", "hf", place_ / "from_spare"});
  EXPECT_EQ(read_file(place_ / "from_spare/tokenizer.json"), read_file(place_ / "more/tokenizer.json"));

  // Ends are the tokenizer's, and those of the base's config.json where it says no others; the data's tokenizer stays where the
  // base is gone.
  std::filesystem::remove(place_ / "base/generation_config.json");
  for (const auto& [folder, ends] : {std::pair<std::string, std::string>{"plain", "[259,258]"}, {"alone", "[259]"}}) {
    const std::string out = said({"convert", "--from", "ckpt", place_ / "full", "--to", "hf", place_ / folder});
    EXPECT_EQ(out.find("not carried along"), std::string::npos) << out;
    EXPECT_EQ(eos_of(folder + "/config.json"), "259");
    EXPECT_EQ(eos_of(folder + "/generation_config.json"), ends);
    EXPECT_EQ(read_file(place_ / (folder + "/tokenizer.json")), read_file(place_ / "more/tokenizer.json")) << folder;
    std::filesystem::remove_all(place_ / "base");
  }
}

TEST_F(AddedTokens, TrainWholeBesideAdapters) {
  const std::string lora = "adapter.type=lora", save = "adapter.modules_to_save=embed_tokens";
  expect_one_line(start("frozen", {lora}), 64,
                  {"model.vocab_size = 261", "has 259 tokens", "model.embed_tokens.weight", "one of those tokens as a target",
                   "name embed_tokens in adapter.modules_to_save"});
  expect_one_line(start("frozen", {"train.freeze=.*embed.*"}), 64,
                  {"do not train: they stay", "leave model.embed_tokens.weight out of train.freeze, or"});
  expect_one_line(start("frozen", {}, false), 65, {"more_packs", "of 261 tokens", "vocab_size to 261 or more"});
  succeeded(start("lora", {lora, save}));
  expect_parts(read_file(place_ / "lora/run.log"), {" --to peft ", "lora/adapter\n", " --to hf ", "lora/hf\n"});
  const double loss = loss_of_new({"--ckpt", place_ / "lora"});
  said({"convert", "--from", "ckpt", place_ / "lora", "--to", "peft", place_ / "adapter"});
  EXPECT_EQ(read_file(place_ / "adapter/tokenizer.json"), read_file(place_ / "more/tokenizer.json"));
  EXPECT_NEAR(loss_of_new({"--hf", place_ / "base", "--adapter", place_ / "adapter"}), loss, 1e-5 * loss);
  said({"convert", "--from", "peft", place_ / "base", place_ / "adapter", "--to", "hf", place_ / "merged"});
  expect_whole_folder("merged", loss);
  const auto chain = [&](const std::string& from, const std::string& to) {
    said({"train", "--config", place_ / (from + "/config.resolved.json"), "--set", "run.dir=" + (place_ / to), "--set",
          "checkpoint.dir=null", "--set", "model.init_from=" + (place_ / from), "--set", "data.tokenizer=null"});
  };
  chain("lora", "chained");
  said({"convert", "--from", "ckpt", place_ / "chained", "--to", "peft", place_ / "chained_adapter"});
  const std::string config = place_ / "chained_adapter/adapter_config.json";
  const JsonValue chained = parse_json(read_file(config), config);
  EXPECT_EQ(chained.find("base_model_name_or_path")->as_string(), place_ / "base") << "not the checkpoint between them";
  EXPECT_EQ(to_json_text(*chained.find("modules_to_save")), "[\"model.embed_tokens\"]");
  EXPECT_EQ(read_file(place_ / "chained_adapter/tokenizer.json"), read_file(place_ / "more/tokenizer.json"));
  EXPECT_EQ(read_file(place_ / "chained/run.log").find("ids mean other texts"), std::string::npos);
  // Runs of another precision, one after the other: the merged folder has the dtype of the one that they began beside.
  succeeded(start("narrow", {lora, save, "run.steps=1", "precision.compute=bf16"}));
  chain("narrow", "narrower");
  said({"convert", "--from", "ckpt", place_ / "narrower", "--to", "hf", place_ / "of_two"});
  EXPECT_EQ(parse_json(read_file(place_ / "of_two/config.json"), "of_two").find("dtype")->as_string(), "float32");
  std::filesystem::rename(place_ / "base", place_ / "moved");
  said({"convert", "--from", "ckpt", place_ / "lora", "--to", "hf", place_ / "at_once", "--set",
        "model.init_from=" + (place_ / "moved")});
  expect_whole_folder("at_once", loss);
}

// The file holds defaults, as transformers and vLLM take it; flags go before them.
TEST_F(AddedTokens, GenerationConfigIsTheDefault) {
  const std::string file = place_ / "base/generation_config.json";
  const struct {
    std::string json;
    std::vector<std::string> flags, equal;
    std::string said;
  } rows[] = {{R"({"do_sample": true, "temperature": 0.5, "top_k": 30, "top_p": 0.9, "repetition_penalty": 1.5})",
               {},
               {"--temperature", "0.5", "--top-k", "30", "--top-p", "0.9", "--repetition-penalty", "1.5"},
               "repetition_penalty 1.5, temperature 0.5, top_k 30, top_p 0.9 (flags go before it)\n"},
              {R"({"temperature": 0.5, "top_k": 30, "min_p": 0.1})",
               {"--top-k", "200"},
               {"--temperature", "0.5", "--top-k", "200"},
               "temperature 0.5 (flags go before it); min_p 0.1 is not done here\n"},
              {R"({"temperature": 0.5, "top_k": 30, "repetition_penalty": 1.5})",
               {"--greedy"},
               {"--greedy", "--repetition-penalty", "1.5"},
               "repetition_penalty 1.5 (flags"},
              {R"({"do_sample": false, "temperature": 0.5})", {}, {"--greedy"}, "do_sample false (flags"},
              {R"({"temperature": 0, "top_k": 30, "top_p": 0.9})", {}, {"--greedy"}, "temperature 0 (flags"},
              {R"({"do_sample": false})", {"--temperature", "1"}, {"--temperature", "1"}, ""},
              {R"({"eos_token_id": 258})", {}, {"--temperature", "1"}, ""}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.json);
    const std::vector<std::string> draw{"generate",    "--hf",         place_ / "base",    "--prompt", "And God ",
                                        "--print-ids", "--ignore-end", "--max-new-tokens", "24"};
    write_file(file, row.json);
    const ProgramOutcome taken = succeeded(run_program(plus(draw, row.flags)));
    write_file(file, "{}");
    EXPECT_EQ(taken.out, succeeded(run_program(plus(draw, row.equal))).out);
    EXPECT_EQ(taken.err, row.said.empty() ? "" : taken.err);
    expect_parts(taken.err, {row.said.empty() ? "" : file + ": " + row.said});
  }
  for (const auto& [json, said] :
       {std::pair{R"({"top_p": 1.5})", "--top-p = 1.5"}, {R"({"top_k": "all"})", "top_k = \"all\": must be"},
        {R"({"top_k": 40.7})", "top_k = 40.7: must be a whole number"}, {R"({"top_k": 1e300})", "top_k = 1e+300: must be"}}) {
    write_file(file, json);
    expect_one_line(run_program({"generate", "--hf", place_ / "base", "--prompt", "a"}), 65, {file, said});
  }
}

// A token for padding, say: the rows stay the mean of the others, and nothing learns to say them.
TEST_F(AddedTokens, StayAsTheyAreWhereNoTargetIsOne) {
  create_folder(place_ / "pad");
  write_tokenizer("pad", {"<|pad|>"});
  for (const std::string file : {"tokenizer_config.json", "chat_template.jinja"})
    write_file(place_ / ("pad/" + file), read_file(place_ / ("base/" + file)));
  said({"data", "prepare", "--chat", "--input", place_ / "chats.jsonl", "--tokenizer", place_ / "pad", "--output",
        place_ / "padded"});
  said({"data", "pack", place_ / "padded", "--sequence", "192", "--output", place_ / "pad_packs"});
  const std::vector<std::string> lora{"adapter.type=lora", "data.train=" + (place_ / "pad_packs"),
                                      "data.tokenizer=" + (place_ / "pad")};
  const ProgramOutcome first = succeeded(start("lora", plus(lora, {"run.steps=3", "checkpoint.every=3"})));
  EXPECT_EQ(first.err.find("does not train"), std::string::npos) << first.err;
  succeeded(start("lora", lora));
  const double loss = loss_of(std::vector<std::string>{"--ckpt", place_ / "lora"}, "257 97 98 258 10 257");
  said({"convert", "--from", "ckpt", place_ / "lora", "--to", "peft", place_ / "adapter"});
  said({"convert", "--from", "ckpt", place_ / "lora", "--to", "hf", place_ / "merged"});
  EXPECT_NEAR(loss_of(std::vector<std::string>{"--hf", place_ / "merged"}, "257 97 98 258 10 257"), loss, 1e-5 * loss);
  EXPECT_EQ(parse_json(read_file(place_ / "merged/config.json"), "merged").find("vocab_size")->as_integer(), 260);
}

double first_loss(const std::vector<JsonValue>& records) { return records.front().find("loss")->as_number(); }
double last_loss(const std::vector<JsonValue>& records) {
  for (auto record = records.rbegin(); record != records.rend(); ++record)
    if (const JsonValue* const loss = record->find("loss")) return loss->as_number();
  return NAN;
}

TEST_F(FineTuning, DataOfAnotherTokenizerAreWarnedOfAndRefusedLater) {
  said({"data", "prepare", "--input", TRIDENT_SOURCE_DIR "/data/excerpt/valid.txt", "--tokenizer", "bytes", "--output",
        place_ / "other"});
  train("others", R"("steps": 1)", R"("init_from": ")" + (place_ / "base") + "\"", R"({"train": ")" + (place_ / "other") + R"("})",
        "");
  EXPECT_TRUE(is_warned("others"));  // another tokenizer made its data
  const auto prepare = [&](const std::vector<std::string>& more) {
    said(plus({"data", "prepare", "--input", TRIDENT_SOURCE_DIR "/data/excerpt/valid.txt", "--tokenizer", place_ / "base",
               "--output", place_ / "text"}, more));
  };
  prepare({"--append-eod", "--overwrite"});
  // A run does not go on with that of another one, whatever else is allowed.
  const auto with_text = [&](const std::string& allowed, const std::string& steps = "2") {
    return run_program({"train", "--config", place_ / "others.json", "--set", "run.steps=" + steps, "--set",
                        "data.train=" + (place_ / "text"), "--set", "checkpoint.allow=" + allowed});
  };
  expect_one_line(with_text("data.train"), 64, {"data.train: tokenizer ", "ids mean other texts", "list \"data.tokenizer\""});
  // Nor with other files, of another name or of the same one.
  expect_one_line(
      with_text("data.tokenizer"), 64,
      {"data.train: other data than the checkpoint ", "another run.dir, or set ", " name those, or list \"data.train\""});
  succeeded(with_text(R"(["data.train","data.tokenizer"])"));
  prepare({"--overwrite"});
  const ProgramOutcome shorter = with_text("data.tokenizer", "3");
  expect_one_line(shorter, 64,
                  {"data.train: the files are others by now than those the checkpoint ", " put the earlier ones back, or list "});
  std::smatch tokens;  // the earlier ones had an end of document more
  ASSERT_TRUE(std::regex_search(shorter.err, tokens, std::regex(": now .*? for ([0-9]+).*, then .*? for ([0-9]+)")))
      << shorter.err;
  EXPECT_LT(std::stoi(tokens[1]), std::stoi(tokens[2])) << shorter.err;
}

TEST_F(FineTuning, GoesFromConversationsToAMergedFolder) {
  const std::vector<JsonValue> full = tune("full", ""),
                               lora = tune("lora", R"(, "adapter": {"type": "lora", "r": 4, "alpha": 16})");
  EXPECT_EQ(full.size(), lora.size());
  said({"train", "--config", place_ / "lora.json", "--set", "run.dir=" + (place_ / "named"), "--set",
        "data.tokenizer=" + (place_ / "base")});
  EXPECT_NE(read_file(place_ / "lora/run.log").find("trained 4.096K of 31.1K parameters"), std::string::npos);
  EXPECT_FALSE(is_warned("full"));
  EXPECT_NEAR(first_loss(full), first_loss(lora), 1e-5 * first_loss(full)) << "an adapter begins with adding nothing";
  EXPECT_LT(last_loss(full), 0.8 * first_loss(full));
  EXPECT_LT(last_loss(lora), 0.99 * first_loss(lora)) << "beside an embedding and a head that are frozen and random";

  said({"convert", "--from", "ckpt", place_ / "lora", "--to", "peft", place_ / "adapter"});
  expect_parts(said({"convert", "--from", "peft", place_ / "base", place_ / "adapter", "--to", "hf", place_ / "merged"}),
               {" tensors of " + (place_ / "base") + " with " + (place_ / "adapter") + " merged into them, "});
  expect_parts(said({"data", "pack", place_ / "chats", "--sequence", "300", "--output", place_ / "long"}),
               {"warning: " + (place_ / "base") + " has 256 positions, fewer than --sequence 300"});
  const double base = loss_of({"--hf", place_ / "base"}),
               beside = loss_of({"--hf", place_ / "base", "--adapter", place_ / "adapter"}),
               merged = loss_of({"--hf", place_ / "merged"});
  EXPECT_NEAR(beside, merged, 1e-6 * merged);
  const auto warned = [&](const std::vector<std::string>& more) {
    const std::vector<std::string> eval{"eval", "--hf", place_ / "base", "--data", place_ / "chats"};
    const ProgramOutcome outcome = succeeded(run_program(plus(eval, more)));
    return outcome.err.find("windows run across its conversations") != std::string::npos;
  };
  EXPECT_TRUE(warned({}));
  EXPECT_FALSE(warned({"--set", "data.samples=packed"}));
  EXPECT_FALSE(warned({"--per-document"}));

  // The run's checkpoint is merged at once, also when its base has moved.
  const auto weights_of = [&](const std::string& folder) { return read_file(place_ / (folder + "/model.safetensors")); };
  said({"convert", "--from", "ckpt", place_ / "lora", "--to", "hf", place_ / "at_once"});
  for (const char* file : {"/model.safetensors", "/config.json", "/tokenizer.json", "/chat_template.jinja"})
    EXPECT_EQ(read_file(place_ / ("at_once" + std::string(file))), read_file(place_ / ("merged" + std::string(file)))) << file;
  EXPECT_NE(weights_of("at_once"), weights_of("base"));
  said({"convert", "--from", "ckpt", place_ / "lora", "--to", "hf", place_ / "half", "--dtype", "bf16"});
  said({"convert", "--from", "peft", place_ / "base", place_ / "adapter", "--to", "hf", place_ / "half_of_two", "--dtype", "bf16"});
  EXPECT_EQ(weights_of("half"), weights_of("half_of_two"));
  std::filesystem::rename(place_ / "base", place_ / "moved");
  const std::vector<std::string> convert{"convert", "--from", "ckpt", place_ / "lora", "--to", "hf", place_ / "from_moved"};
  expect_one_line(run_program(convert), 64,
                  {"its frozen weights are those of ", "model.init_from=DIR of train, eval, generate and convert"});
  const std::vector<std::string> moved{"--set", "model.init_from=" + (place_ / "moved")};
  said(plus(convert, moved));
  // A tokenizer that was named as the base's moved with it.
  said(plus({"generate", "--ckpt", place_ / "named", "--prompt", "a", "--greedy", "--max-new-tokens", "1"}, moved));
  EXPECT_EQ(weights_of("from_moved"), weights_of("merged"));
  std::string changed = weights_of("moved");
  changed[changed.size() - 3] ^= 1;
  create_folder(place_ / "other");
  for (const char* file : {"config.json", "tokenizer.json"})
    write_file(place_ / ("other/" + std::string(file)), read_file(place_ / ("moved/" + std::string(file))));
  write_file(place_ / "other/model.safetensors", changed);
  const auto refused = [&](const std::vector<std::string>& more, const std::vector<std::string>& parts) {
    std::vector<std::string> arguments = convert;
    arguments.at(6) = place_ / "refused";
    expect_one_line(run_program(plus(arguments, more)), 64, parts);
    EXPECT_FALSE(file_exists(place_ / "refused"));
  };
  refused({"--set", "model.init_from=" + (place_ / "other")}, {" has other values in ", "other now"});
  refused({"--set", "batch.micro=2"}, {"--set batch.micro=2: convert takes model.init_from=DIR alone"});
  expect_one_line(run_program(plus({"convert", "--from", "ckpt", place_ / "full", "--to", "hf", place_ / "refused"}, moved)), 64,
                  {"has all weights, so that it has no effect"});
  expect_one_line(run_program(plus({"convert", "--from", "ckpt", place_ / "lora", "--to", "peft", place_ / "refused"}, moved)), 64,
                  {"only --from ckpt --to hf reads a checkpoint's base"});
  std::filesystem::rename(place_ / "moved", place_ / "base");
  expect_no_tokenizer_by_null();
  expect_whole_numbers_alone();
  expect_samples_end_as_the_folder_says();
  // Its checkpoint holds the adapters and their states alone, and finds the rest.
  EXPECT_NEAR(loss_of({"--ckpt", place_ / "lora"}), merged, 1e-5 * merged);
  const JsonValue manifest = newest_manifest("lora"), whole = newest_manifest("full");
  EXPECT_EQ(manifest.find("base")->as_string(), place_ / "base");
  EXPECT_LT(weight_bytes(manifest), 0.25 * weight_bytes(whole));
  EXPECT_GT(std::abs(base - merged), 1e-3);
  write_file(place_ / "ask.json", R"([{"role": "user", "content": "And God "}])");
  const std::vector<std::string> ask{"--messages", place_ / "ask.json", "--max-new-tokens", "16", "--greedy"};
  const std::vector<std::string> by_merged = plus({"generate", "--hf", place_ / "merged"}, ask);
  const std::vector<std::string> by_run = plus({"generate", "--ckpt", place_ / "lora"}, ask);
  EXPECT_NE(said(by_merged), "");
  expect_swapped_tokenizers_are_told(by_merged, by_run);
}

}  // namespace
}  // namespace trident
