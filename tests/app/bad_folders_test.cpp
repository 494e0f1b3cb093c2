// Hugging Face folders that are wrong in one place: convert, eval and generate name the file, and the tensor or key, with 65 for
// what is damaged and 64 for a model that is not supported; nothing is left of what convert was to write.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

// The parts of a folder, to be spoiled.
struct Parts {
  std::string config, header, data;
  std::string index = {};          // model.safetensors.index.json, where not empty
  bool weights = true;             // whether model.safetensors is written
  std::int64_t length_change = 0;  // of the header's length in front of it

  static Parts good() {
    const std::string golden = TRIDENT_SOURCE_DIR "/tests/model/goldens/families/qwen2.5/";  // untied
    Parts parts;
    parts.config = read_file(golden + "config.json");
    const std::string content = read_file(golden + "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, content.data(), sizeof length);
    parts.header = content.substr(8, length);
    parts.header.erase(parts.header.find_last_not_of(' ') + 1);
    parts.data = content.substr(8 + length);
    return parts;
  }

  void write(const std::string& folder) const {
    create_folder(folder);
    write_file(folder + "/config.json", config);
    if (!index.empty()) write_file(folder + "/model.safetensors.index.json", index);
    if (!weights) return;
    const auto length = static_cast<std::uint64_t>(std::ssize(header) + length_change);
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    write_file(folder + "/model.safetensors", text + header + data);
  }
};

void change(std::string& text, const std::string& from, const std::string& to) {
  text = replaced(text, from, to);
}

// A key of config.json, set to this value.
void set_key(std::string& config, const std::string& key, const std::string& value) {
  JsonValue json = parse_json(config, "config.json");
  json.set(key, parse_json(value, "value"));
  config = to_json_text(json);
}

// The offsets of a tensor, as text and as numbers.
struct Offsets {
  std::string text;
  std::int64_t begin = 0, end = 0;
};
Offsets offsets_of(const std::string& header, const std::string& tensor) {
  const JsonValue json = parse_json(header, "header");
  const JsonValue::Array& pair = json.find(tensor)->find("data_offsets")->items();
  const std::int64_t begin = pair[0].as_integer(), end = pair[1].as_integer();
  return {fmt::format("[{},{}]", begin, end), begin, end};
}

const char* const kNorm = "model.norm.weight";
const char* const kWeights = "model.safetensors";
const char* const kIndex = "model.safetensors.index.json";

struct BadFolder {
  const char* name;
  std::function<void(Parts&)> spoil;
  int code;
  std::vector<std::string> said;
};

std::vector<BadFolder> bad_headers() {
  return {
      {"no-json", [](Parts& p) { p.header = "{" + std::string(p.header.size() - 1, 'x'); }, 65, {kWeights}},
      {"length-beyond-file", [](Parts& p) { p.length_change = 1 << 30; }, 65, {kWeights, "header"}},
      {"length-negative", [](Parts& p) { p.length_change = -std::ssize(p.header) - 1; }, 65, {kWeights, "header"}},
      {"too-short", [](Parts& p) { p.data.resize(p.data.size() - 4); }, 65, {kWeights}},
      {"too-long", [](Parts& p) { p.data += "abcd"; }, 65, {kWeights}},
      {"overlap",
       [](Parts& p) {
         const Offsets o = offsets_of(p.header, kNorm);
         change(p.header, o.text, fmt::format("[{},{}]", o.begin - 4, o.end - 4));
       },
       65,
       {kWeights}},
      {"end-before-begin",
       [](Parts& p) {
         const Offsets o = offsets_of(p.header, kNorm);
         change(p.header, o.text, fmt::format("[{},{}]", o.end, o.begin));
       },
       65,
       {kWeights, kNorm}},
      {"offset-overflow",
       [](Parts& p) { change(p.header, offsets_of(p.header, kNorm).text, "[0,18446744073709551615]"); },
       65,
       {kWeights}},
      {"name-twice",
       [](Parts& p) { change(p.header, "model.layers.0.input_layernorm", "model.layers.1.input_layernorm"); },
       65,
       {kWeights, "model.layers.1.input_layernorm.weight"}},
      {"shape-overflow",
       [](Parts& p) { change(p.header, "\"shape\":[53,16]", "\"shape\":[4294967296,4294967296]"); },
       65,
       {kWeights}},
      {"no-float", [](Parts& p) { change(p.header, "\"F32\"", "\"I32\""); }, 65, {kWeights, "I32"}},
      {"no-value", [](Parts& p) { change(p.header, "\"F32\"", "\"U32\""); }, 65, {kWeights, "is U32, expected F32, BF16 or F16"}},
      {"unknown-dtype", [](Parts& p) { change(p.header, "\"F32\"", "\"Q4_0\""); }, 65, {kWeights, "Q4_0"}},
      {"missing-tensor", [](Parts& p) { change(p.header, kNorm, "model.layers.0.self_attn.rotary_emb.inv_freq"); }, 65, {kNorm}},
      {"unknown-tensor", [](Parts& p) { change(p.header, "q_proj.bias", "x_proj.bias"); }, 65, {kWeights, "x_proj.bias"}},
      {"other-shape", [](Parts& p) { set_key(p.config, "vocab_size", "54"); }, 65, {kWeights, "[53,16]", "[54,16]"}},
  };
}

std::vector<BadFolder> bad_configs_and_indices() {
  const auto index = [](const std::string& map) {
    return [map](Parts& p) { p.index = R"({"metadata": {"total_size": 4}, "weight_map": )" + map + "}", p.weights = false; };
  };
  return {
      {"config-no-json", [](Parts& p) { p.config = "{\"model_type\": "; }, 65, {"config.json"}},
      {"mixture", [](Parts& p) { set_key(p.config, "model_type", "\"mixtral\""); }, 64, {"config.json", "model_type", "mixtral"}},
      {"quantized",
       [](Parts& p) { set_key(p.config, "quantization_config", R"({"quant_method": "gptq"})"); },
       64,
       {"config.json", "quantization_config"}},
      {"softcap",
       [](Parts& p) { set_key(p.config, "final_logit_softcapping", "-30.0"); },
       64,
       {"config.json", "final_logit_softcapping"}},
      {"activation", [](Parts& p) { set_key(p.config, "hidden_act", "\"relu\""); }, 64, {"config.json", "hidden_act", "relu"}},
      {"heads", [](Parts& p) { set_key(p.config, "num_key_value_heads", "3"); }, 64, {"config.json", "3 key/value heads"}},
      {"text-for-number", [](Parts& p) { set_key(p.config, "hidden_size", "\"16\""); }, 64, {"config.json", "hidden_size"}},
      {"index-no-json", [](Parts& p) { p.index = "[", p.weights = false; }, 65, {kIndex}},
      {"index-is-list", [](Parts& p) { p.index = "[]", p.weights = false; }, 65, {kIndex}},
      {"index-file-missing",
       index(R"({"model.norm.weight": "model-00001-of-00001.safetensors"})"),
       65,
       {kIndex, kNorm, "model-00001-of-00001.safetensors"}},
      {"index-escapes", index(R"({"model.norm.weight": "../other/model.safetensors"})"), 65, {kIndex, kNorm, "the name of a file"}},
      {"index-number", index(R"({"model.norm.weight": 7})"), 65, {kIndex, kNorm}},
      {"index-other-tensor",
       [](Parts& p) { p.index = R"({"metadata": {}, "weight_map": {"model.nose.weight": "model.safetensors"}})"; },
       65,
       {kWeights, "model.nose.weight"}},
  };
}

class BadFolders : public ::testing::Test {
 protected:
  void refused(const BadFolder& bad) {
    SCOPED_TRACE(bad.name);
    const std::string folder = place_ / bad.name;
    Parts parts = Parts::good();
    bad.spoil(parts);
    parts.write(folder);
    const std::vector<std::string> said = plus(bad.said, {bad.name});
    expect_one_line(run_program({"convert", "--from", "hf", folder, "--to", "ckpt", place_ / "out"}), bad.code, said);
    expect_one_line(run_program({"eval", "--hf", folder, "--ids", "5 6 7"}), bad.code, said);
    expect_one_line(run_program({"generate", "--hf", folder, "--prompt-ids", "5 6", "--max-new-tokens", "2"}), bad.code, said);
    for (const auto& entry : fs::directory_iterator(place_.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path() << " was left";
  }
  TemporaryFolder place_;
};

TEST_F(BadFolders, TheGoodOneIsTaken) {
  Parts::good().write(place_ / "good");
  EXPECT_EQ(run_program({"convert", "--from", "hf", place_ / "good", "--to", "ckpt", place_ / "out"}).exit_code, 0);
  EXPECT_EQ(run_program({"eval", "--hf", place_ / "good", "--ids", "5 6 7"}).exit_code, 0);
  EXPECT_EQ(run_program({"generate", "--hf", place_ / "good", "--prompt-ids", "5 6", "--max-new-tokens", "2"}).exit_code, 0);
}

TEST_F(BadFolders, HeadersThatAreDamagedOrHostile) {
  for (const BadFolder& bad : bad_headers()) refused(bad);
}

TEST_F(BadFolders, ConfigurationsAndIndicesAreRefused) {
  for (const BadFolder& bad : bad_configs_and_indices()) refused(bad);
}

// Checkpoints on their way out: a byte of the weights, a manifest that ends early, a folder that is none.
// A disk that takes no more, here files that may not grow: each of the files that are written is named, and nothing is left.
TEST_F(BadFolders, AFullDiskLeavesNothing) {
  const std::string good = place_ / "whole", ckpt = place_ / "whole-ckpt", out = place_ / "out";
  Parts::good().write(good);
  ASSERT_EQ(run_program({"convert", "--from", "hf", good, "--to", "ckpt", ckpt}).exit_code, 0);
  const auto limited = [&](int blocks, const std::vector<std::string>& convert) {
    const std::string script = fmt::format("ulimit -f {}; exec \"$@\"", blocks);
    return run_command(plus({"bash", "-c", script, "bash", TRIDENT_BINARY, "convert"}, convert));
  };
  const std::vector<std::string> in{"--from", "hf", good, "--to", "ckpt", out}, back{"--from", "ckpt", ckpt, "--to", "hf", out};
  for (const auto& [words, file] : {std::pair{in, "w-00000-0.safetensors"}, {back, "model.safetensors"}}) {
    for (const int blocks : {1, 8}) {  // of 1024 bytes
      SCOPED_TRACE(fmt::format("{} in {} blocks", file, blocks));
      const ProgramOutcome outcome = limited(blocks, words);
      expect_one_line(outcome, 74, {"out", file});
      for (const auto& entry : fs::directory_iterator(place_ / "."))
        EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
    }
    EXPECT_EQ(limited(1000, words).exit_code, 0);
    fs::remove_all(out);
  }
}

TEST_F(BadFolders, CheckpointsThatAreDamaged) {
  Parts::good().write(place_ / "good");
  const std::string ckpt = place_ / "ckpt";
  ASSERT_EQ(run_program({"convert", "--from", "hf", place_ / "good", "--to", "ckpt", ckpt}).exit_code, 0);
  const auto refused_in_all = [&](const std::string& folder, const std::vector<std::string>& said) {
    expect_one_line(run_program({"convert", "--from", "ckpt", folder, "--to", "hf", place_ / "out"}), 65, said);
    expect_one_line(run_program({"eval", "--ckpt", folder, "--ids", "5 6 7"}), 65, said);
    expect_one_line(run_program({"generate", "--ckpt", folder, "--prompt-ids", "5 6", "--max-new-tokens", "2"}), 65, said);
    EXPECT_FALSE(fs::exists(place_ / "out"));
  };
  const std::string weights = ckpt + "/weights/w-00000-0.safetensors", bytes = read_file(weights);
  std::string damaged = bytes;
  damaged[damaged.size() - 5] = static_cast<char>(damaged[damaged.size() - 5] ^ 0x10);
  write_file(weights, damaged);
  refused_in_all(ckpt, {"w-00000-0.safetensors"});
  write_file(weights, bytes.substr(0, bytes.size() - 4096));
  refused_in_all(ckpt, {"w-00000-0.safetensors"});
  write_file(weights, bytes);
  const std::string manifest = read_file(ckpt + "/manifest.json");
  write_file(ckpt + "/manifest.json", manifest.substr(0, manifest.size() / 2));
  refused_in_all(ckpt, {"manifest.json"});
  refused_in_all(place_ / "nowhere", {"nowhere"});
}

// Folders as other programs leave them, given to every command: masks in dtypes that no weight has, and what is no folder of
// safetensors, which each command names, with what to do.

const std::string kGolden = TRIDENT_SOURCE_DIR "/tests/model/goldens/families/gpt2/";

// A safetensors file with a tensor appended: its values are zeros.
std::string with_tensor(const std::string& file, const std::string& name, const std::string& dtype, std::size_t bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  std::string header = file.substr(8, length), data = file.substr(8 + length);
  header.resize(header.find_last_of('}'));
  header +=
      fmt::format(R"(,"{}":{{"dtype":"{}","shape":[8],"data_offsets":[{},{}]}}}})", name, dtype, data.size(), data.size() + bytes);
  length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + data + std::string(bytes, '\0');
}

class ForeignFolders : public Checkpoints {
 protected:
  static std::vector<std::vector<std::string>> readers_of(const std::string& folder) {
    return {{"eval", "--hf", folder, "--ids", "5 6 7"},
            {"generate", "--hf", folder, "--prompt-ids", "5 6", "--max-new-tokens", "1"}};
  }
  ProgramOutcome begin_with(const std::string& folder) const { return place_.train({"model.init_from=" + folder}); }
  std::vector<std::string> convert(const std::string& folder) const {
    fs::remove_all(place_ / "out");
    return {"convert", "--from", "hf", folder, "--to", "ckpt", place_ / "out"};
  }
  std::string make(const std::string& folder, const std::vector<std::string>& names, const std::string& content = "x") const {
    create_folder(place_ / folder);
    for (const std::string& name : names) write_file(place_ / folder + "/" + name, content);
    return place_ / folder;
  }
  void copy_golden(const std::string& folder) const {
    create_folder(folder);
    for (const char* name : {"config.json", "model.safetensors"}) write_file(folder + "/" + name, read_file(kGolden + name));
  }
};

TEST_F(ForeignFolders, AMaskRefusesNoFileByItsDType) {
  const std::string good = read_file(kGolden + "model.safetensors"), folder = place_ / "hf";
  copy_golden(folder);
  const ProgramOutcome expected = run_program(readers_of(folder)[0]);
  const std::string begun = begin_with(folder).err;  // of another model, which is said behind the files' headers
  for (const auto& [dtype, bytes] :
       {std::pair{"BOOL", 8}, {"U8", 8}, {"F8_E4M3", 8}, {"U32", 32}, {"U64", 64}, {"I16", 16}, {"F4", 4}, {"F6_E2M3", 6},
        {"Q5_OF_TOMORROW", 5}, {"bool", 1}}) {
    SCOPED_TRACE(dtype);
    const std::string masked = with_tensor(good, "transformer.h.0.attn.bias", dtype, static_cast<std::size_t>(bytes));
    write_file(folder + "/model.safetensors", masked);
    EXPECT_EQ(run_program(readers_of(folder)[0]).out, expected.out);
    EXPECT_EQ(run_program(convert(folder)).exit_code, 0);
    write_file(folder + "/model.safetensors", masked + "x");
    expect_one_line(run_program(readers_of(folder)[0]), 65, {"model.safetensors", "1 bytes after the last tensor"});
  }
  write_file(folder + "/model.safetensors", with_tensor(good, "transformer.h.0.attn.masked_bias", "BOOL", 8));
  EXPECT_EQ(begin_with(folder).err, begun);
  for (const auto& [dtype, said] : {std::pair{R"("I8" )", "its shape needs"}, {R"("F9" )", "is F9, expected F32, BF16 or F16"}}) {
    std::string used = good;
    used.replace(used.find("\"F32\""), 5, dtype);
    write_file(folder + "/model.safetensors", used);
    expect_one_line(run_program(readers_of(folder)[0]), 65, {"model.safetensors", "tensor \"", said});
  }
}

TEST_F(ForeignFolders, WhatAFolderIsInsteadIsSaidByEveryCommand) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 548105171\n";
  copy_golden(place_ / "lfs");
  write_file(place_ / "lfs/model.safetensors", pointer);
  copy_golden(place_ / "lfs-config");
  write_file(place_ / "lfs-config/config.json", pointer);
  create_folder(place_ / "models--a--b/snapshots/11");
  create_folder(place_ / "models--a--b/snapshots/22");
  make("models--c--d/snapshots/33", {"adapter_config.json"});
  const struct {
    std::string path;
    std::vector<std::string> said;
  } kinds[] = {
      {place_ / "lfs", {"lfs/model.safetensors: is a git-lfs pointer", "git lfs pull"}},
      {place_ / "lfs-config", {"lfs-config/config.json: is a git-lfs pointer", "git lfs pull"}},
      {make("pickle", {"config.json", "pytorch_model.bin"}, "{}"), {"as a pickle, pytorch_model.bin", "as safetensors"}},
      {make("shards", {"config.json", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"}, "{}"),
       {"as a pickle", "as safetensors"}},
      {make("adapter", {"adapter_config.json", "adapter_model.safetensors"}), {"is an adapter", "merge it"}},
      {make("llama", {"consolidated.00.pth", "params.json"}), {"consolidated.00.pth", "config.json and model.safetensors"}},
      {make("gguf", {"model-q4.gguf"}, "GGUF"), {"model-q4.gguf", "safetensors"}},
      {place_ / "gguf/model-q4.gguf", {"is a GGUF file", "safetensors"}},
      {place_ / "models--a--b", {"2 snapshots, 11, 22", "models--a--b/snapshots/11"}},
      {place_ / "models--c--d", {"is an adapter", "merge it"}},
      {make("unindexed", {"config.json", "model-00001-of-00002.safetensors"}, "{}"),
       {"model-00001-of-00002.safetensors", "index.json"}},
      {"Qwen/Qwen2-0.5B", {"nothing is downloaded", "hf download Qwen/Qwen2-0.5B"}},
  };
  for (const auto& [path, said] : kinds) {
    SCOPED_TRACE(path);
    for (const std::vector<std::string>& words : readers_of(path)) expect_one_line(run_program(words), 65, said);
    expect_one_line(run_program(convert(path)), 65, said);
    expect_one_line(begin_with(path), 65, said);
    if (path.starts_with(place_ / "lfs") || path.starts_with("Qwen/")) continue;
    for (const char* action : {"show", "ls"}) expect_one_line(run_program({"ckpt", action, path}), 65, said);
    expect_one_line(run_program({"eval", "--ckpt", path, "--ids", "1 2"}), 65, said);
  }
  expect_one_line(run_program(readers_of(place_ / "run")[0]), 65, {"--hf = ", "no such folder"});
  // A word is taken for what it names, and a base stands before its adapter.
  copy_golden(place_ / "good");
  const std::string good = place_ / "good", adapter = place_ / "adapter";
  const std::pair<std::vector<std::string>, std::string> words[] = {
      {{"generate", good, "hi"}, "; say --hf " + good},
      {{"eval", adapter}, "; say --hf BASE --adapter " + adapter},
      {{"convert", good, "out"}, "; say --from hf " + good},
      {{"convert", adapter, "out"}, "; say --from peft BASE " + adapter},
      {{"convert", "--from", "peft", adapter, good, "--to", "hf", place_ / "out"},
       "; say --from peft " + good + " " + adapter + "\n"},
      {{"convert", "--from", "ckpt", good, "--to", "peft", place_ / "out", "--dtype", "fp16"}, "adapters in fp32; leave it out\n"},
      {{"generate", "--hf", good, "--prompt", "hi"},
       "a prompt of text: needs a tokenizer, and the model names no tokenizer that can "
       "be read (" +
           good + " has none: no tokenizer.json, "},
      {{"generate", "--hf", good, "--prompt-ids", "1", "--stop", "a"}, "give --tokenizer, or leave --stop out\n"},
      {{"generate", "--hf", good, "--chat"}, "--chat: needs a tokenizer, "},
      {{"generate", "--hf", good, "--prompt", "hi", "--tokenizer", "Qwen/Qwen2-0.5B"}, "hf download Qwen/Qwen2-0.5B"}};
  for (const auto& [command, said] : words) expect_one_line(run_program(command), 64, {said});
  for (const char* near : {"adaptr", "adaptr/"})
    expect_one_line(run_program(readers_of(place_ / near)[0]), 65, {"check the path; did you mean \"adapter\"?"});
  // A folder beside it hides no model of the hub.
  create_folder(place_ / "gpt3");
  const fs::path here = fs::current_path();
  fs::current_path(place_ / "");
  EXPECT_EQ(what_stands_at("gpt2"), "no such folder (nothing is downloaded); did you mean \"gpt3\"?; check the path, or download a "
                                    "model of the hub first: hf download gpt2 --local-dir DIR");
  fs::current_path(here);
  // No checkpoint is downloaded from anywhere.
  EXPECT_EQ(run_program({"ckpt", "ls", "Qwen/Qwen2-0.5B"}).err, "trident: Qwen/Qwen2-0.5B: no such folder; check the path\n");
  expect_one_line(run_program({"ckpt", "ls", place_ / "adaptr"}), 65,
                  {"no such folder; check the path; did you mean \"adapter\"?"});
}

// The one that refs/main names, else the only one; in place of the folder everywhere.
TEST_F(ForeignFolders, AFolderOfTheHubsCacheIsItsSnapshot) {
  const std::string cache = place_ / "models--a--b", plain = place_ / "hf";
  copy_golden(plain);
  copy_golden(cache + "/snapshots/0123");
  const auto ids_of = [](const std::string& folder) {
    return run_program(plus(readers_of(folder)[1], {"--greedy", "--print-ids"}));
  };
  const ProgramOutcome expected = succeeded(ids_of(plain));
  EXPECT_EQ(ids_of(cache).out, expected.out);
  create_folder(cache + "/snapshots/4567");
  EXPECT_EQ(ids_of(cache).exit_code, 65);
  create_folder(cache + "/refs");
  write_file(cache + "/refs/main", "0123\n");
  EXPECT_EQ(ids_of(cache).out, expected.out);
  EXPECT_EQ(run_program(convert(cache)).exit_code, 0);
}

}  // namespace
}  // namespace trident
