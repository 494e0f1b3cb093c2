// trident convert, and runs that begin with Hugging Face folders.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kFamilies{"gpt2",  "llama",   "llama3", "smollm", "qwen2", "qwen2.5",
                                         "qwen3", "mistral", "olmo",   "olmo2",  "phi3",    "olmo_clipped", "llama_dynamic"};

std::string golden(const std::string& family, const std::string& file) {
  return std::string(TRIDENT_SOURCE_DIR "/tests/model/goldens/families/") + family + "/" + file;
}

// Reads every file below a folder.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder).string()] = read_file(entry.path().string());
  return files;
}

// The same files with the same bytes. Says which differ, not how.
void expect_same_files(const std::string& folder, const std::string& other) {
  std::map<std::string, std::string> files = contents(folder), others = contents(other);
  EXPECT_FALSE(files.empty()) << folder;
  for (const auto& [name, bytes] : files)
    EXPECT_TRUE(others.contains(name) && others[name] == bytes) << folder << ", " << other << ": " << name;
  for (const auto& [name, bytes] : others) EXPECT_TRUE(files.contains(name)) << other << " alone: " << name;
}

class Convert : public ::testing::Test {
 protected:
  // A folder as transformers saved it, through links as in the hub's cache, with a tokenizer's file.
  std::string hf_folder(const std::string& family) const {
    const std::string folder = place_ / family;
    create_folder(folder);
    for (const char* file : {"config.json", "generation_config.json", "model.safetensors"})
      fs::create_symlink(golden(family, file), folder + "/" + file);
    write_file(folder + "/tokenizer.json", "{\"version\": \"1.0\"}");
    return folder;
  }
  static ProgramOutcome to_ckpt(const std::string& from, const std::string& to, const std::vector<std::string>& more = {}) {
    return run_program(plus({"convert", "--from", "hf", from, "--to", "ckpt", to}, more));
  }
  static ProgramOutcome to_hf(const std::string& from, const std::string& to, const std::vector<std::string>& more = {}) {
    return run_program(plus({"convert", "--from", "ckpt", from, "--to", "hf", to}, more));
  }
  // A copy that may be changed.
  std::string own_folder(const std::string& name, const std::string& family = "llama") const {
    const std::string folder = place_ / name;
    create_folder(folder);
    for (const char* file : {"config.json", "model.safetensors"}) write_file(folder + "/" + file, read_file(golden(family, file)));
    return folder;
  }
  // The file with `change` made to its header.
  static void change_header(const std::string& path, const std::string& from, const std::string& to) {
    const std::string content = read_file(path);
    std::uint64_t length = 0;
    std::memcpy(&length, content.data(), sizeof length);
    const std::string json = replaced(content.substr(8, length), from, to);
    length = json.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    write_file(path, text + json + data_of(content));
  }
  static std::string data_of(const std::string& content) {
    std::uint64_t length = 0;
    std::memcpy(&length, content.data(), sizeof length);
    return content.substr(8 + length);
  }
  TemporaryFolder place_;
};

TEST_F(Convert, AFolderComesBackByteForByte) {
  for (const std::string& family : kFamilies) {
    const std::string folder = hf_folder(family), ckpt = place_ / ("ckpt-" + family), back = place_ / ("back-" + family);
    succeeded(to_ckpt(folder, ckpt));
    succeeded(run_program({"ckpt", "verify", ckpt}));
    succeeded(to_hf(ckpt, back));
    expect_same_files(back, folder);
  }
}

TEST_F(Convert, FilesAreCutAsAskedAndReadAgain) {
  const std::string folder = hf_folder("qwen3"), ckpt = place_ / "ckpt", cut = place_ / "cut";
  ASSERT_EQ(to_ckpt(folder, ckpt).exit_code, 0);
  const ProgramOutcome out = succeeded(to_hf(ckpt, cut, {"--shard-size", "9KB"}));
  const JsonValue index = parse_json(read_file(cut + "/model.safetensors.index.json"), "index");
  EXPECT_GT(index.find("weight_map")->members().size(), 20u);
  ASSERT_TRUE(file_exists(cut + "/model-00002-of-00004.safetensors")) << out.out;
  EXPECT_FALSE(file_exists(cut + "/model.safetensors"));
  // Through a checkpoint again, the same cut, and whole.
  ASSERT_EQ(to_ckpt(cut, place_ / "ckpt2").exit_code, 0);
  ASSERT_EQ(to_hf(place_ / "ckpt2", place_ / "cut2").exit_code, 0);
  expect_same_files(place_ / "cut2", cut);
  ASSERT_EQ(to_hf(place_ / "ckpt2", place_ / "one", {"--shard-size", "1GB"}).exit_code, 0);
  expect_same_files(place_ / "one", folder);
}

TEST_F(Convert, DtypesAreConvertedAndSaid) {
  const std::string folder = hf_folder("llama");
  ASSERT_EQ(to_ckpt(folder, place_ / "a", {"--dtype", "bf16"}).exit_code, 0);
  ASSERT_EQ(to_hf(place_ / "a", place_ / "bf16").exit_code, 0);
  const JsonValue config = parse_json(read_file(place_ / "bf16/config.json"), "config.json");
  EXPECT_EQ(config.find("torch_dtype")->as_string(), "bfloat16");
  EXPECT_EQ(config.find("dtype")->as_string(), "bfloat16");
  EXPECT_LT(fs::file_size(place_ / "bf16/model.safetensors"), fs::file_size(folder + "/model.safetensors") * 6 / 10);
  // bf16 values are fp32 values.
  ASSERT_EQ(to_ckpt(place_ / "bf16", place_ / "b", {"--dtype", "fp32"}).exit_code, 0);
  ASSERT_EQ(to_hf(place_ / "b", place_ / "back", {"--dtype", "bf16"}).exit_code, 0);
  EXPECT_EQ(read_file(place_ / "back/model.safetensors"), read_file(place_ / "bf16/model.safetensors"));
}

// The last value and one before it, in every dtype: both are named with file, tensor and place, once each, and come back.
TEST_F(Convert, WhatIsNoNumberOrInfiniteIsNamedAndKept) {
  const auto folder_with = [&](const std::string& name, const std::string& from, std::size_t size, std::uint32_t nan,
                               std::uint32_t infinity) {
    const std::string folder = place_ / name;
    create_folder(folder);
    write_file(folder + "/config.json", read_file(from + "/config.json"));
    std::string content = read_file(from + "/model.safetensors");
    std::memcpy(content.data() + content.size() - 1 * size, &nan, size);
    std::memcpy(content.data() + content.size() - 2 * size, &infinity, size);
    std::memcpy(content.data() + content.size() - 3 * size, &infinity, size);
    write_file(folder + "/model.safetensors", content);
    return folder;
  };
  const std::string goldens = TRIDENT_SOURCE_DIR "/tests/";
  for (const auto& [name, from, size, nan, infinity] :
       {std::tuple{"f32", "model/goldens/families/llama", std::size_t{4}, 0x7fc00123u, 0xff800000u},
        {"bf16", "infer/goldens/mistral", std::size_t{2}, 0xffc1u, 0x7f80u},
        {"f16", "infer/goldens/qwen3", std::size_t{2}, 0x7e01u, 0xfc00u}}) {
    SCOPED_TRACE(name);
    const std::string folder = folder_with(name, goldens + from, size, nan, infinity);
    const std::string ckpt = place_ / (std::string("ckpt-") + name), back = place_ / (std::string("back-") + name);
    const ProgramOutcome in = succeeded(to_ckpt(folder, ckpt));
    const std::string begin = "warning: " + folder + "/model.safetensors: tensor \"model.norm.weight\" has values that are ";
    const bool last_of_32 = std::string(name) != "f32";  // width of the model; the norm is the last tensor
    expect_parts(in.out, {begin + "no numbers, the first at [" + (last_of_32 ? "31" : "15") + "]; they are kept\n",
                          begin + "infinite, the first at [" + (last_of_32 ? "29" : "13") + "]; they are kept\n"});
    EXPECT_EQ(std::count(in.out.begin(), in.out.end(), '\n'), 3) << in.out;
    const ProgramOutcome out = succeeded(to_hf(ckpt, back));
    expect_parts(out.out, {"warning: " + ckpt + ": tensor \"model.norm.weight\" has values that are infinite"});
    EXPECT_EQ(read_file(back + "/model.safetensors"), read_file(folder + "/model.safetensors"));
    // A run that begins with it says the same.
    const ProgramOutcome eval = run_program({"eval", "--hf", folder, "--ids", "5 6 7", "--set", "precision.compute=fp32"});
    for (const char* what : {"no numbers, such as [", "infinite, such as ["})
      expect_parts(eval.err, {folder + "/model.safetensors: tensor \"model.norm.weight\" has values that are " + what});
  }
}

// Names as a model without its head has them, in one file and in several.
TEST_F(Convert, NamesWithoutTheirBeginningComeBackSo) {
  for (const auto& [family, prefix] : {std::pair{"gpt2", "transformer."}, {"qwen2", "model."}}) {
    const std::string folder = own_folder(std::string(family) + "-bare", family);
    std::string content = read_file(folder + "/model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, content.data(), sizeof length);
    std::string header = content.substr(8, length);
    int changed = 0;
    for (std::size_t at; (at = header.find(std::string("\"") + prefix)) != header.npos; ++changed)
      header.erase(at + 1, std::string(prefix).size());
    ASSERT_GT(changed, 10);
    header.erase(header.find_last_not_of(' ') + 1);
    header.resize((header.size() + 7) / 8 * 8, ' ');
    length = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    write_file(folder + "/model.safetensors", text + header + data_of(content));
    const std::string name = family;
    ASSERT_EQ(to_ckpt(folder, place_ / (name + "-ckpt")).exit_code, 0);
    succeeded(to_hf(place_ / (name + "-ckpt"), place_ / (name + "-back")));
    expect_same_files(place_ / (name + "-back"), folder);
    // Cut, and through a checkpoint again.
    ASSERT_EQ(to_hf(place_ / (name + "-ckpt"), place_ / (name + "-cut"), {"--shard-size", "9KB"}).exit_code, 0);
    EXPECT_EQ(read_file(place_ / (name + "-cut/model.safetensors.index.json")).find(std::string("\"") + prefix), std::string::npos);
    ASSERT_EQ(to_ckpt(place_ / (name + "-cut"), place_ / (name + "-ckpt2")).exit_code, 0);
    ASSERT_EQ(to_hf(place_ / (name + "-ckpt2"), place_ / (name + "-cut2")).exit_code, 0);
    expect_same_files(place_ / (name + "-cut2"), place_ / (name + "-cut"));
  }
}

// Bad folders: code 65, the file and the tensor named, and nothing of the output left.
TEST_F(Convert, BadFoldersAreRefused) {
  const auto refused = [&](const std::string& folder, const std::vector<std::string>& parts, int code = 65) {
    expect_one_line(to_ckpt(folder, place_ / "out"), code, parts);
    for (const auto& entry : fs::directory_iterator(place_.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
  };
  const std::string weights = "/model.safetensors", norm = "\"model.norm.weight\"";
  std::string folder = own_folder("short");
  write_file(folder + weights, read_file(golden("llama", "model.safetensors")).substr(0, 5000));
  refused(folder, {"short/model.safetensors", "tensor"});

  folder = own_folder("shape");
  const auto change_config = [&](const std::string& from, const std::string& to) {
    write_file(folder + "/config.json", replaced(read_file(folder + "/config.json"), from, to));
  };
  change_config("\"intermediate_size\": ", "\"intermediate_size\": 1");
  refused(folder, {"shape/model.safetensors: tensor \"model.layers.0.mlp.", "has the shape [", "expected ["});

  folder = own_folder("renamed");
  change_header(folder + weights, norm, "\"model.nose.weight\"");
  refused(folder, {"renamed/model.safetensors: has tensor \"model.nose.weight\"", "expected"});

  folder = own_folder("missing");
  fs::remove(folder + weights);
  const auto index = [&](const std::string& file) {
    write_file(folder + "/model.safetensors.index.json",
               R"({"metadata": {"total_size": 4}, "weight_map": {"a": ")" + file + R"("}})");
  };
  index("model-00001-of-00001.safetensors");
  refused(folder, {"missing/model.safetensors.index.json: tensor \"a\"", "is not there"});
  for (const char* escape : {"../short/model.safetensors", "/etc/x.safetensors", "..", "a\\\\b.safetensors", "x..safetensors"}) {
    index(escape);
    refused(folder, {"missing/model.safetensors.index.json: tensor \"a\": its file", "expected the name of a file"});
  }
  index("model.safetensors");
  write_file(folder + weights, read_file(golden("llama", "model.safetensors")));
  refused(folder, {"missing/model.safetensors: has no tensor \"a\""});

  // A tied model with a head of its own.
  folder = own_folder("tied");
  change_config("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  refused(folder, {"tied/model.safetensors: tensor \"lm_head.weight\" has other values", "tie_word_embeddings"});

  folder = own_folder("moe");
  write_file(folder + "/config.json", R"({"model_type": "mixtral"})");
  refused(folder, {"moe/config.json", "model_type", "mixture-of-experts"}, 64);
}

TEST_F(Convert, WordsThatAreNoneAreRefused) {
  const std::string folder = hf_folder("llama");
  expect_one_line(run_program({"convert", "--from", "hf", folder, "--to", "hf", place_ / "x"}), 64, {"nothing to convert"});
  expect_one_line(run_program({"convert", "--from", "gguf", folder, "--to", "hf", place_ / "x"}), 64, {"must be hf or ckpt"});
  expect_one_line(to_ckpt(folder, place_ / "x", {"--dtype", "fp8"}), 64, {"--dtype \"fp8\"", "fp32, bf16 or fp16"});
  expect_one_line(to_ckpt(folder, place_ / "x", {"--shard-size", "5GB"}), 64, {"--shard-size", "leave it out"});
  expect_one_line(to_hf(folder, place_ / "x", {"--shard-size", "0"}), 64, {"--shard-size \"0\"", "such as 5GB"});
  expect_one_line(to_hf(folder, place_ / "x"), 64, {"is a Hugging Face folder", "--from hf"});
  expect_one_line(to_ckpt(folder, folder), 64, {"is there already"});
  expect_one_line(to_ckpt(place_ / "nothing", place_ / "x"), 65, {"--from hf = ", "no such folder"});
}

// The masters of a run in bf16, its layout whatever it is, into a folder and back into a run.
TEST_F(Checkpoints, MastersGoThroughAFolder) {
  ASSERT_EQ(train({"precision.compute=bf16", "parallel=2DP x 2PP x 2TP", "parallel.zero=zero3"}).exit_code, 0);
  const std::string ckpt = place_ / "run/ckpt", hf = place_ / "hf";
  const ProgramOutcome out = succeeded(run_program({"convert", "--from", "ckpt", ckpt, "--to", "hf", hf, "--dtype", "fp32"}));
  const auto begin = [&](const std::string& run, const std::string& from) {
    return place_.train({"model.init_from=" + from, "run.steps=1", "checkpoint.every=1", "optimizer.lr=1e-30",
                         "precision.compute=bf16", "lr_schedule.type=constant", "run.dir=" + (place_ / run)});
  };
  ASSERT_EQ(begin("a", ckpt).exit_code, 0);
  const ProgramOutcome begun = succeeded(begin("b", hf));
  expect_parts(begun.out, {"begins with the weights of " + hf + " (model.init_from), a Hugging Face folder in f32"});
  succeeded(run_program({"ckpt", "diff", place_ / "a/ckpt/step-00000001", place_ / "b/ckpt/step-00000001"}));
  const std::vector<std::string> again{"convert", "--from", "ckpt", place_ / "b/ckpt", "--to", "hf"};
  const auto to_hf = [&](std::vector<std::string> more) {
    more.insert(more.begin(), again.begin(), again.end());
    return succeeded(run_program(more)).out;
  };
  EXPECT_EQ(out.out.find("training began"), std::string::npos) << out.out;
  EXPECT_EQ(out.out.find("warning"), std::string::npos) << out.out;
  EXPECT_EQ(read_file(hf + "/vocab.json"), read_file(TRIDENT_SOURCE_DIR "/data/gpt2/vocab.json"));
  expect_parts(read_file(hf + "/config.json"), {"\"eos_token_id\": 50256"});
  expect_parts(to_hf({place_ / "as_computed"}),
               {"warning: training began with " + hf + " in fp32, and the weights are written in bf16",
                "--dtype fp32 writes its masters"});
  EXPECT_EQ(to_hf({place_ / "asked", "--dtype", "bf16"}).find("warning"), std::string::npos);
  // Weights alone have no masters, and a folder that only the warning reads may be damaged.
  ASSERT_EQ(place_.train({"model.init_from=" + hf, "run.steps=1", "checkpoint.every=1", "checkpoint.content=weights",
                          "precision.compute=bf16", "run.dir=" + (place_ / "alone")}).exit_code, 0);
  const std::vector<std::string> of_alone{"convert", "--from", "ckpt", place_ / "alone/ckpt", "--to", "hf", place_ / "of_alone"};
  EXPECT_EQ(succeeded(run_program(of_alone)).out.find("warning"), std::string::npos);
  write_file(hf + "/config.json", "{\"a\":1");
  EXPECT_EQ(to_hf({place_ / "damaged"}).find("warning"), std::string::npos);
}

// Without a model in the configuration the folder's config.json is the model; what the configuration says otherwise is refused by
// key.
// A configuration of the place whose model is that of a folder.
void write_config(const Workplace& place, const std::string& name, const std::string& hf) {
  const std::string config = read_file(place / "config.json");
  const std::size_t model = config.find("\"model\": {");
  const std::string keys = config.substr(model, config.find('}', model) + 1 - model);
  write_file(place / name, replaced(config, keys, "\"model\": {\"init_from\": \"" + hf + "\"}"));
}

TEST_F(Checkpoints, AFolderSaysItsModel) {
  ASSERT_EQ(train({"run.steps=2"}).exit_code, 0);
  const std::string hf = place_ / "hf";
  ASSERT_EQ(run_program({"convert", "--from", "ckpt", place_ / "run/ckpt", "--to", "hf", hf}).exit_code, 0);
  write_config(place_, "short.json", hf);
  succeeded(place_.train({"run.dir=" + (place_ / "a"), "checkpoint.every=2"}, "", "short.json"));
  expect_one_line(place_.train({"run.dir=" + (place_ / "b"), "model.intermediate_size=96"}, "", "short.json"), 64,
                  {"model.intermediate_size = 96", "config.json of model.init_from = " + hf + " has 64; give that value, leave the "
                   "model's keys out, or"});
  // It goes on though the folder is gone.
  fs::rename(hf, place_ / "moved");
  succeeded(run_program({"ckpt", "show", place_ / "a/ckpt"}));
  EXPECT_EQ(run_program({"convert", "--from", "ckpt", place_ / "a/ckpt", "--to", "hf", place_ / "again"}).exit_code, 0);
}

// Data of another tokenizer is warned of, and so are prompts, which the folder's reads.
TEST_F(Checkpoints, ARunThatBeganWithAFolderHasItsTokenizer) {
  ASSERT_EQ(train({"run.steps=2"}).exit_code, 0);
  const std::string hf = place_ / "hf", run = place_ / "a";
  ASSERT_EQ(run_program({"convert", "--from", "ckpt", place_ / "run/ckpt", "--to", "hf", hf}).exit_code, 0);
  fs::remove(hf + "/vocab.json");
  write_file(hf + "/tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 7, "b": 5}, "merges": []}})");
  const std::vector<std::string> settings{"model.init_from=" + hf, "data.tokenizer=null", "run.steps=1", "checkpoint.every=1",
                                          "run.dir=" + run};
  expect_parts(succeeded(place_.train(settings)).err,
               {"text.trident.json: was made by tokenizer \"gpt2\" of 50257 tokens",
                "model.init_from by tokenizer \"" + hf + "\" of 8"});
  const auto ids = [&](const std::vector<std::string>& prompt) {
    const std::vector<std::string> command{"generate", "--ckpt", run, "--greedy", "--max-new-tokens", "4", "--print-ids"};
    return run_program(plus(command, prompt));
  };
  expect_parts(succeeded(ids({"--prompt", "ab"})).err,
               {"warning: ", "the model learned ids of the tokenizer ", "--tokenizer gpt2"});
  EXPECT_EQ(succeeded(ids({"--prompt", "ab"})).out, succeeded(ids({"--prompt-ids", "7 5"})).out);
}

// Read back over its base, the adapter of a run gives the losses of the run's checkpoint, and others than the base alone.
TEST_F(Checkpoints, AdaptersGoThroughAFolderOfPeftsForm) {
  ASSERT_EQ(train({"run.steps=2"}).exit_code, 0);
  const std::string hf = place_ / "hf", adapter = place_ / "adapter";
  ASSERT_EQ(run_program({"convert", "--from", "ckpt", place_ / "run/ckpt", "--to", "hf", hf}).exit_code, 0);
  expect_one_line(run_program({"convert", "--from", "ckpt", place_ / "run/ckpt", "--to", "peft", adapter}), 64,
                  {"run without adapters", "--to hf"});
  expect_one_line(run_program({"convert", "--from", "hf", hf, "--to", "peft", adapter}), 64, {"write --from ckpt"});
  succeeded(train({"run.dir=" + (place_ / "tuned"), "model.init_from=" + hf, "parallel=2DP x 2TP", "adapter.type=lora",
                   "adapter.r=3", "adapter.alpha=7", "adapter.rslora=true", "optimizer.lr=0.02"}));
  succeeded(run_program({"convert", "--from", "ckpt", place_ / "tuned", "--to", "peft", adapter}));
  const auto loss = [](const std::vector<std::string>& model) {
    const ProgramOutcome out = succeeded(run_program(plus(
        plus({"eval"}, model), {"--ids", "5 17 2 9 301 44 8", "--json", "--set", "precision.compute=fp32"})));
    return parse_json(out.out, "eval").find("loss")->as_number();
  };
  const double of_run = loss({"--ckpt", place_ / "tuned"}), of_base = loss({"--hf", hf});
  EXPECT_NEAR(loss({"--hf", hf, "--adapter", adapter}), of_run, 1e-5);
  EXPECT_GT(std::fabs(of_run - of_base), 1e-3);
  const JsonValue config = parse_json(read_file(adapter + "/adapter_config.json"), "config");
  EXPECT_EQ(config.find("base_model_name_or_path")->as_string(), hf);
  EXPECT_EQ(*config.find("lora_alpha"), JsonValue(7));
  const std::vector<JsonValue>& modules = config.find("target_modules")->items();  // as PEFT names them
  EXPECT_EQ(std::ranges::count(modules, JsonValue("q_proj")), 1) << to_json_text(config);
}

// As a run that goes on, convert takes the newest that is whole, and says which are not.
TEST_F(Checkpoints, ADamagedOneIsPassedOverAloudByConvert) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string run = place_ / "run/ckpt";
  const auto convert = [&](const std::string& from, const std::string& to) {
    return run_program({"convert", "--from", "ckpt", from, "--to", "hf", to});
  };
  expect_parts(succeeded(convert(run, place_ / "first")).out, {" tensors of " + run + "/step-00000004, "});
  ASSERT_EQ(convert(run + "/step-00000002", place_ / "second").exit_code, 0);
  write_file(run + "/step-00000004/manifest.json", "{}");
  const ProgramOutcome out = succeeded(convert(run, place_ / "newest"));
  expect_parts(out.out, {"warning: step-00000004 is skipped: "});
  expect_same_files(place_ / "newest", place_ / "second");
  write_file(run + "/step-00000002/manifest.json", "{}");
  expect_one_line(convert(run, place_ / "none"), 65, {"step-00000004", "no other checkpoint is valid", "--from ckpt"});
  EXPECT_FALSE(fs::exists(place_ / "none"));
}

// An older checkpoint would not mend its base.
TEST_F(Checkpoints, ADamagedBasePassesNoCheckpointOver) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string base = place_ / "run/ckpt/step-00000004", file = base + "/weights/w-00000-0.safetensors";
  succeeded(train({"run.dir=" + (place_ / "tuned"), "model.init_from=" + base, "adapter.type=lora", "adapter.r=3"}));
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] ^= 1;
  write_file(file, bytes);
  const ProgramOutcome out = run_program({"convert", "--from", "ckpt", place_ / "tuned", "--to", "hf", place_ / "merged"});
  expect_one_line(out, 65, {file});
  EXPECT_EQ(out.err.find("name another in --from ckpt"), std::string::npos) << out.err;
}

// A path counts from where training was started, and the tokenizer is found from elsewhere, too. Where it is gone that is said.
TEST_F(Checkpoints, TheTokenizerOfAFolderIsFoundByARelativePath) {
  ASSERT_EQ(train({"run.steps=2"}).exit_code, 0);
  const std::string hf = place_ / "hf";
  ASSERT_EQ(run_program({"convert", "--from", "ckpt", place_ / "run/ckpt", "--to", "hf", hf}).exit_code, 0);
  write_file(hf + "/tokenizer_config.json", "{}");
  const std::string run = place_ / "a";
  succeeded(run_command({"bash", "-c", "cd " + (place_ / ".") + " && exec \"$@\"", "bash", TRIDENT_BINARY, "train", "--config",
                         place_ / "config.json", "--set", "model.init_from=./hf", "--set", "run.steps=2", "--set",
                         "checkpoint.every=2", "--set", "run.dir=" + run}));
  const auto convert = [&](const std::string& to) {
    return run_program({"convert", "--from", "ckpt", run + "/ckpt", "--to", "hf", to});
  };
  const ProgramOutcome found = succeeded(convert(place_ / "found"));
  EXPECT_EQ(found.out.find("warning"), std::string::npos) << found.out;
  EXPECT_EQ(read_file(place_ / "found/tokenizer_config.json"), "{}");
  fs::rename(hf, place_ / "moved");
  const ProgramOutcome gone = succeeded(convert(place_ / "gone"));
  expect_parts(gone.out, {"warning: model.init_from = " + hf + ": training began with it"});
  EXPECT_FALSE(fs::exists(place_ / "gone/tokenizer_config.json"));
}

TEST_F(Checkpoints, TheTokenizerOfDataGoesAlongWhereTrainingBeganWithNoFolder) {
  fs::create_directories(place_ / "tokens");
  const std::string tokenizer = R"({"model": {"type": "BPE", "vocab": {"a": 7, "b": 5}, "merges": []}})";
  write_file(place_ / "tokens/tokenizer.json", tokenizer);
  fs::remove(place_ / "text.trident.json");  // which names another tokenizer
  ASSERT_EQ(train({"run.steps=1", "data.tokenizer=" + std::string(place_ / "tokens")}).exit_code, 0);
  succeeded(run_program({"convert", "--from", "ckpt", place_ / "run/ckpt", "--to", "hf", place_ / "hf"}));
  EXPECT_EQ(read_file(place_ / "hf/tokenizer.json"), tokenizer);
}

// Stock transformers computes no bounds in these families.
TEST_F(Checkpoints, BoundsThatTransformersIgnoresAreWarnedOf) {
  ASSERT_EQ(train({"run.steps=2", "model.final_logit_softcapping=6"}).exit_code, 0);
  const std::string hf = place_ / "hf";
  const ProgramOutcome out = succeeded(run_program({"convert", "--from", "ckpt", place_ / "run/ckpt", "--to", "hf", hf}));
  expect_parts(out.out, {"warning: config.json bounds scores or logits", "final_logit_softcapping = 6", "transformers ignores"});
  expect_parts(read_file(hf + "/config.json"), {"\"final_logit_softcapping\": 6"});
}

// A folder whose tokens see 16 others: sequences within that train as with all, longer ones do not.
TEST_F(Checkpoints, AFoldersWindowCounts) {
  ASSERT_EQ(train({"run.steps=2"}).exit_code, 0);
  const std::string hf = place_ / "hf";
  ASSERT_EQ(run_program({"convert", "--from", "ckpt", place_ / "run/ckpt", "--to", "hf", hf}).exit_code, 0);
  JsonValue folder = parse_json(read_file(hf + "/config.json"), "config.json");
  folder.set("model_type", "mistral");
  folder.set("architectures", JsonValue::Array{JsonValue("MistralForCausalLM")});
  folder.set("sliding_window", std::int64_t{16});
  std::erase_if(folder.members(), [](const JsonMember& m) { return m.key == "attention_bias" || m.key == "mlp_bias"; });
  write_file(hf + "/config.json", to_json_text(folder));
  write_config(place_, "window.json", hf);
  const auto begin = [&](const std::string& run, const std::vector<std::string>& more) {
    return place_.train(plus({"run.dir=" + (place_ / run), "run.steps=1", "batch.sequence=16"}, more), "", "window.json");
  };
  const auto loss = [&](const std::string& run, const std::vector<std::string>& more) {
    succeeded(begin(run, more));
    return place_.metrics(run).at(0).find("loss")->as_number();
  };
  expect_one_line(begin("b", {"model.sliding_window=null"}), 64, {"model.sliding_window = null", "has 16", "checkpoint.allow"});
  expect_one_line(begin("b", {"model.sliding_window=17", "batch.sequence=32"}), 64, {"model.sliding_window = 17", "has 16"});
  const auto loss_of_another = [&](const std::string& run, std::vector<std::string> more) {
    more.push_back("checkpoint.allow=model");
    return loss(run, more);
  };
  EXPECT_EQ(loss("a", {}), loss_of_another("b", {"model.sliding_window=null"}));
  const double windowed = loss("c", {"batch.sequence=32"});
  EXPECT_NE(windowed, loss_of_another("d", {"batch.sequence=32", "model.sliding_window=17"}));
  const double all = loss_of_another("e", {"batch.sequence=32", "model.sliding_window=32"});
  EXPECT_EQ(all, loss_of_another("f", {"batch.sequence=32", "model.sliding_window=null"}));
  EXPECT_NE(windowed, all);
}

}  // namespace
}  // namespace trident
