// Adapters that PEFT saved, to the families' folders: merged weights, and losses of the model with its adapter, are PEFT's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "core/bf16.h"
#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/convert/convert.h"
#include "infer/eval/choices_file.h"
#include "infer/eval/eval_windows.h"
#include "infer/eval/run_eval.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/safetensors.h"
#include "train/launch/run_forward.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

const std::string kAdapters = TRIDENT_PEFT_GOLDENS, kFamilies = TRIDENT_GOLDENS "/families/";

std::vector<double> losses_with_adapter(const std::string& base, const std::string& adapter, const std::vector<std::int32_t>& ids,
                                        std::vector<std::string> settings = {}) {
  EvalOptions options;
  options.hf_folder = base;
  options.adapter = adapter;
  options.ids = ids;
  options.token_losses = true;
  options.settings = std::move(settings);
  options.settings.emplace_back("precision.compute=fp32");
  std::ostringstream said;
  LogSink log(said);
  return run_eval([&] { return options; }, log, *make_cuda_backend())->token_nats;
}

struct PeftGolden {
  explicit PeftGolden(const std::string& name)
      : folder(kAdapters + "/" + name), json(parse_json(read_file(folder + "/golden.json"), "golden.json")) {
    base = kFamilies + json.find("base")->as_string();
    for (const JsonValue& id : json.find("ids")->items()) ids.push_back(static_cast<std::int32_t>(id.as_integer()));
    for (const JsonValue& loss : json.find("losses")->items()) losses.push_back(loss.as_number());
  }
  std::string folder, base;
  JsonValue json;
  std::vector<std::int32_t> ids;
  std::vector<double> losses;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance, const std::string& of) {
  ASSERT_EQ(got.size(), expected.size()) << of;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << of << ", token " << i;
}

// Copies a folder, with zeros in the place of a tensor's first row.
void copy_without_row(const std::string& from, const std::string& to, const std::string& file, const std::string& tensor) {
  fs::copy(from, to, fs::copy_options::recursive);
  test::TensorMap tensors = test::read_safetensors(from + file);
  test::NamedTensor& changed = tensors.at(tensor);
  std::fill_n(changed.data.begin(), static_cast<std::ptrdiff_t>(sizeof(float)) * changed.shape.back(), std::byte{0});
  test::write_safetensors(to + file, tensors);
}

TEST(PeftRows, OfZerosStayZerosWithDora) {
  const PeftGolden golden("llama_dora");
  const TemporaryFolder place;
  const std::string module = "model.layers.0.self_attn.q_proj";
  copy_without_row(golden.base, place / "base", "/model.safetensors", module + ".weight");
  copy_without_row(golden.folder, place / "adapter", "/adapter_model.safetensors", "base_model.model." + module + ".lora_B.weight");
  peft_to_hf({place / "base", place / "adapter"}, place / "merged", {});
  const std::vector<float> values =
      test::read_safetensors(place / "merged/model.safetensors").at(module + ".weight").values<float>();
  EXPECT_EQ(std::ranges::count(values, 0.0f), 16);
  EXPECT_TRUE(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }));
}

class PeftGoldens : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Adapters, PeftGoldens,
                         ::testing::Values("llama_dora", "qwen2_patterns", "gpt2_all", "gpt2_dora", "phi3_saved", "qwen2_tied",
                                           "llama_more_tokens"));

TEST_P(PeftGoldens, MergedWhileTheyAreReadGiveTheLossesOfPeft) {
  const PeftGolden golden(GetParam());
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{}, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.sequence_parallel=false"}})
    expect_near(losses_with_adapter(golden.base, golden.folder, golden.ids, layout), golden.losses, 1e-5, GetParam());
}

TEST_P(PeftGoldens, MergedIntoAFolderAreTheWeightsOfPeftAndAllOthersStay) {
  const PeftGolden golden(GetParam());
  const TemporaryFolder place;
  const ConvertReport report = peft_to_hf({golden.base, golden.folder}, place / "merged", {});
  EXPECT_EQ(report.dtype, DType::kF32);
  auto merged = test::read_safetensors(place / "merged/model.safetensors"),
       base = test::read_safetensors(golden.base + "/model.safetensors");
  ASSERT_EQ(merged.size(), base.size());
  for (const auto& [name, tensor] : base) {
    ASSERT_TRUE(merged.contains(name)) << name;
    const JsonValue* const expected = golden.json.find("merged")->find(name);
    if (expected == nullptr) {
      EXPECT_EQ(merged.at(name).data, tensor.data) << name;
      continue;
    }
    const std::vector<float> values = merged.at(name).values<float>();
    double sum = 0, largest = 0;
    for (const float value : values) sum += value, largest = std::max(largest, std::fabs(static_cast<double>(value)));
    EXPECT_NEAR(sum, expected->find("sum")->as_number(), 1e-6 * largest * static_cast<double>(values.size())) << name;
    for (const auto& [at, value] : expected->find("values")->members())
      EXPECT_NEAR(values.at(std::stoul(at)), value.as_number(), 1e-6 * largest) << name << " " << at;
  }
  if (GetParam() == "llama_more_tokens")
    EXPECT_EQ(read_json_file(place / "merged/config.json").find("vocab_size")->as_integer(), 57);
  else
    EXPECT_EQ(read_file(place / "merged/config.json"), read_file(golden.base + "/config.json"));
  expect_near(losses_with_adapter(place / "merged", "", golden.ids), golden.losses, 1e-5, GetParam());
}

// A base whose rows were padded is often resized to the tokens of its tokenizer before it gets an adapter.
TEST(PeftMerge, TakesFewerTokensThanTheBaseHas) {
  const TemporaryFolder place;
  const PeftGolden golden("llama_more_tokens");
  fs::copy(golden.folder, place / "adapter", fs::copy_options::recursive);
  const std::string path = place / "adapter/adapter_model.safetensors", prefix = "base_model.model.";
  test::TensorMap tensors = test::read_safetensors(path);
  const std::int64_t rows = 50;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    test::NamedTensor& copy = tensors.at(prefix + name);
    copy.data.resize(copy.data.size() / static_cast<std::size_t>(copy.shape.front()) * rows);
    copy.shape.front() = rows;
  }
  test::write_safetensors(path, tensors);
  peft_to_hf({golden.base, place / "adapter"}, place / "merged", {});
  EXPECT_EQ(read_json_file(place / "merged/config.json").find("vocab_size")->as_integer(), rows);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
    EXPECT_EQ(test::read_safetensors(place / "merged/model.safetensors").at(name).data, tensors.at(prefix + name).data) << name;
  const std::vector<std::int32_t> ids{1, 7, 49, 20};
  expect_near(losses_with_adapter(golden.base, place / "adapter", ids), losses_with_adapter(place / "merged", "", ids), 1e-6,
              "beside the base and merged");
}

// PEFT 0.21 saves both ends of a model whose embedding was resized, by all names that they have in it.
TEST(PeftMerge, TakesTheEndsOfAResizedModelByAllTheirNames) {
  const TemporaryFolder place;
  const std::string file = "/adapter_model.safetensors", prefix = "base_model.model.";
  const std::string embedding = prefix + "model.embed_tokens", head = prefix + "lm_head";
  const PeftGolden saved("llama_more_tokens"), tied("qwen2_patterns");
  fs::copy(saved.folder, place / "saved", fs::copy_options::recursive);
  test::TensorMap tensors = test::read_safetensors(saved.folder + file);
  for (const std::string& end : {embedding, head}) {
    tensors[end + ".modules_to_save.weight"] = tensors.at(end + ".weight");
    tensors[end + ".original_module.weight"] = tensors.at(embedding + ".weight");
  }
  test::write_safetensors(place / ("saved" + file), tensors);
  for (const std::string& from : {saved.folder, place / "saved"})
    peft_to_hf({saved.base, from}, place / (from == saved.folder ? "before" : "after"), {});
  EXPECT_EQ(read_file(place / "after/model.safetensors"), read_file(place / "before/model.safetensors"));

  fs::copy(tied.folder, place / "tied", fs::copy_options::recursive);
  tensors = test::read_safetensors(tied.folder + file);
  const std::vector<float> rows(56 * 16, 0.25f);
  tensors[embedding + ".weight"] = tensors[head + ".weight"] = test::NamedTensor::of<float>({56, 16}, rows);
  test::write_safetensors(place / ("tied" + file), tensors);
  peft_to_hf({tied.base, place / "tied"}, place / "merged", {});
  EXPECT_EQ(test::read_safetensors(place / "merged/model.safetensors").at("model.embed_tokens.weight").values<float>(), rows);
  tensors.erase(embedding + ".weight");
  test::write_safetensors(place / ("tied" + file), tensors);
  expect_error<DataError>([&] { peft_to_hf({tied.base, place / "tied"}, place / "no", {}); }, {"has tensor \"" + head});
}

// PEFT 0.21 saves the bias of a module that trained whole beside trained biases by three names.
TEST(PeftMerge, TakesTheBiasOfASavedModuleByAllItsNames) {
  const TemporaryFolder place;
  const PeftGolden golden("gpt2_all");
  fs::copy(golden.folder, place / "adapter", fs::copy_options::recursive);
  const std::string norm = "transformer.ln_f", in_file = "base_model.model." + norm;
  JsonValue config = read_json_file(place / "adapter/adapter_config.json");
  config.set("modules_to_save", JsonValue::Array{"ln_f"});
  write_file(place / "adapter/adapter_config.json", to_json_text(config));
  test::TensorMap tensors = test::read_safetensors(golden.folder + "/adapter_model.safetensors");
  const test::NamedTensor trained = tensors.at(in_file + ".bias");
  for (const char* name : {".weight", ".modules_to_save.bias"}) tensors[in_file + name] = trained;
  tensors[in_file + ".original_module.bias"] =
      test::read_safetensors(golden.base + "/model.safetensors").at(norm + ".weight");  // what it was before
  test::write_safetensors(place / "adapter/adapter_model.safetensors", tensors);
  peft_to_hf({golden.base, place / "adapter"}, place / "merged", {});
  const test::TensorMap merged = test::read_safetensors(place / "merged/model.safetensors");
  for (const char* name : {".weight", ".bias"}) EXPECT_EQ(merged.at(norm + name).data, trained.data) << name;
}

TEST(PeftMerge, RoundsOnceToTheBasesDtype) {
  const TemporaryFolder place;
  const PeftGolden golden("llama_dora");
  hf_to_checkpoint({golden.base}, place / "ckpt", DType::kBF16);
  checkpoint_to_hf(place / "ckpt", place / "base", {});
  peft_to_hf({place / "base", golden.folder}, place / "bf16", {});
  peft_to_hf({place / "base", golden.folder}, place / "f32", {DType::kF32, std::nullopt});
  const auto rounded = test::read_safetensors(place / "bf16/model.safetensors"),
             exact = test::read_safetensors(place / "f32/model.safetensors");
  for (const auto& [name, tensor] : exact) {
    const std::vector<float> values = tensor.values<float>();
    const std::vector<bf16> of_it = rounded.at(name).values<bf16>();
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(to_float(of_it[i]), to_float(from_float<bf16>(values[i]))) << name;
  }
  // A base of bf16 that is computed with in fp32 has its adapter in fp32, too.
  expect_near(losses_with_adapter(place / "base", golden.folder, golden.ids), losses_with_adapter(place / "f32", "", golden.ids),
              1e-6, "bf16");
  // The same through a checkpoint.
  hf_to_checkpoint({place / "base", golden.folder}, place / "merged", std::nullopt);
  checkpoint_to_hf(place / "merged", place / "back", {});
  EXPECT_EQ(read_file(place / "back/model.safetensors"), read_file(place / "bf16/model.safetensors"));
}

// An adapter that is wrong in one way.
class PeftRefusals : public ::testing::Test {
 protected:
  // A copy whose configuration has other values under some keys.
  std::string adapter(const std::string& name, const std::vector<JsonMember>& keys = {}) {
    const std::string folder = place_ / fmt::format("adapter-{}", ++number_);
    create_folder(folder);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      write_file(folder + "/" + file, read_file(kAdapters + "/" + name + "/" + file));
    JsonValue json = read_json_file(folder + "/adapter_config.json");
    for (const JsonMember& member : keys) json.set(member.key, member.value);
    write_file(folder + "/adapter_config.json", to_json_text(json, 2));
    return folder;
  }
  void refused_key(const JsonMember& member, const std::vector<std::string>& parts, const std::string& base = "llama") {
    const std::string folder = adapter("llama_dora", {member});
    expect_error<ConfigError>([&] { merge(base, folder); }, plus({folder + "/adapter_config.json", member.key}, parts));
  }
  void merge(const std::string& base, const std::string& folder) {
    peft_to_hf({kFamilies + base, folder}, place_ / "out", {});
    fs::remove_all(place_ / "out");
  }
  TemporaryFolder place_;
  int number_ = 0;
};

TEST_F(PeftRefusals, NameTheKeyThatIsNotSupported) {
  for (const char* key :
       {"eva_config", "corda_config", "loftq_config", "arrow_config", "megatron_config", "kasa_config", "new_key"})
    refused_key({key, JsonValue::Object{{"a", 1}}}, {});
  refused_key({"alora_invocation_tokens", JsonValue::Array{3}}, {"[3]", "not supported"});
  refused_key({"layer_replication", JsonValue::Array{JsonValue::Array{0, 1}}}, {"not supported"});
  refused_key({"trainable_token_indices", JsonValue::Array{3}}, {"not supported"});
  refused_key({"lora_bias", true}, {"= true", "not supported", "merge_and_unload"});
  refused_key({"init_lora_weights", "pissa_niter_4"}, {"changes the base's weights"});
  refused_key({"peft_type", "IA3"}, {"must be LORA"});
  refused_key({"task_type", "SEQ_CLS"}, {"CAUSAL_LM"});
  refused_key({"bias", "some"}, {"none, all or lora_only"});
  refused_key({"r", 0}, {"rank 0"});
  refused_key({"target_modules", "(q_proj"}, {"no regular expression"});
  refused_key({"target_modules", "\\Aq_proj"}, {"\\A is not supported"});
  refused_key({"target_modules", JsonValue::Array{"query"}}, {"names no linear layer"});
  refused_key({"target_modules", JsonValue::Array{"embed_tokens"}}, {"names the embedding"});
  refused_key({"target_modules", JsonValue::Array{"lm_head"}}, {"names lm_head", "tie_word_embeddings"}, "llama3");
  refused_key({"modules_to_save", JsonValue::Array{"lm_head"}}, {"in common"}, "llama3");
  merge("gpt2", adapter("gpt2_all", {{"target_modules", "all-linear"}}));  // which leaves embeddings and the head out
  // Keys of other versions that are switched off say nothing, and so do those of training.
  merge("llama",
        adapter("llama_dora",
                {{"new_key", nullptr}, {"other", JsonValue::Object{}}, {"lora_dropout", 0.5}, {"init_lora_weights", "gaussian"}}));
}

TEST_F(PeftRefusals, NameTheTensorThatDoesNotFit) {
  const std::string prefix = "base_model.model.model.layers.0.self_attn.q_proj.";
  const auto changed = [&](const std::function<void(std::map<std::string, test::NamedTensor>&)>& change) {
    const std::string folder = adapter("llama_dora"), path = folder + "/adapter_model.safetensors";
    std::map<std::string, test::NamedTensor> tensors = test::read_safetensors(path);
    change(tensors);
    test::write_safetensors(path, tensors);
    return folder;
  };
  expect_error<ConfigError>([&] { merge("smollm", adapter("llama_dora")); },
                            {"q_proj.lora_A.weight", "[3,16]", "[3,24]", "another model"});
  expect_error<ConfigError>([&] { merge("llama", adapter("llama_dora", {{"r", 4}})); }, {"[3,16]", "[4,16]"});
  expect_error<DataError>([&] { merge("llama", changed([&](auto& t) { t.erase(prefix + "lora_B.weight"); })); },
                          {"has no tensor", "q_proj.lora_B.weight", "[16,3]"});
  expect_error<DataError>([&] { merge("llama", changed([&](auto& t) { t.erase(prefix + "lora_magnitude_vector"); })); },
                          {"has no tensor", "q_proj.lora_magnitude_vector"});
  expect_error<DataError>([&] { merge("llama", changed([&](auto& t) { t["base_model.model.other"] = t.begin()->second; })); },
                          {"has tensor \"base_model.model.other\""});
  expect_error<DataError>([&] { merge("llama", changed([&](auto& t) { t["lm_head.weight"] = t.begin()->second; })); },
                          {"has tensor \"lm_head.weight\""});
  expect_error<ConfigError>(
      [&] { merge("llama", changed([&](auto& t) { t["base_model.model.lm_head.weight"] = t.begin()->second; })); },
      {"lm_head.weight", "[53,16]"});
  expect_error<ConfigError>(  // its other end has fewer tokens
      [&] {
        const std::string folder = adapter("llama_more_tokens", {{"modules_to_save", JsonValue::Array{"lm_head"}}});
        const std::string path = folder + "/adapter_model.safetensors";
        std::map<std::string, test::NamedTensor> tensors = test::read_safetensors(path);
        tensors.erase("base_model.model.model.embed_tokens.weight");
        test::write_safetensors(path, tensors);
        merge("llama", folder);
      },
      {"copies for 57 tokens", "model.embed_tokens.weight has 53 rows", "modules_to_save"});
  expect_error<DataError>(
      [&] {
        merge("llama", changed([&](auto& t) {
                t[prefix + "lora_A.weight"] = test::NamedTensor::of<std::int32_t>({3, 16}, std::vector<std::int32_t>(48));
              }));
      },
      {"q_proj.lora_A.weight", "is I32", "F32, BF16 or F16"});
  const std::string pickle = adapter("llama_dora");
  fs::rename(pickle + "/adapter_model.safetensors", pickle + "/adapter_model.bin");
  expect_error<DataError>([&] { merge("llama", pickle); }, {"adapter_model.bin", "is a pickle"});
  expect_error<DataError>([&] { merge("llama", place_ / "nothing"); }, {"adapter_config.json", "is not there"});
}

// Tests what trident eval gives a model: windows over texts, questions as tokens.

// Every target of every text length, sequence and stride is counted once, with all the inputs before it that its window has.
TEST(EvalWindows, CountEveryTargetOnce) {
  for (std::int64_t sequence = 1; sequence <= 7; ++sequence)
    for (std::int64_t stride = 1; stride <= sequence; ++stride)
      for (std::int64_t tokens = 0; tokens <= 25; ++tokens) {
        std::vector<EvalWindow> windows;
        add_windows(3, tokens, sequence, stride, windows);
        std::int64_t next = 1;
        for (std::size_t w = 0; w < windows.size(); ++w) {
          const EvalWindow& window = windows[w];
          EXPECT_EQ(window.text, 3);
          EXPECT_EQ(window.begin, static_cast<std::int64_t>(w) * stride);
          EXPECT_GE(window.counted(), 1);
          EXPECT_LE(window.inputs, sequence);
          EXPECT_LE(window.begin + window.inputs, tokens - 1);
          EXPECT_EQ(window.begin + window.counted_from + 1, next);
          next = window.begin + window.inputs + 1;
        }
        EXPECT_EQ(next, std::max<std::int64_t>(tokens, 1)) << tokens << " tokens, " << sequence << ", " << stride;
      }
}

TEST(EvalWindows, TheLastOneIsCutAtTheLeft) {
  EXPECT_EQ(last_window(0, 10, 4, 2), (EvalWindow{0, 5, 4, 2}));
  EXPECT_EQ(last_window(0, 10, 100, 2), (EvalWindow{0, 0, 9, 7}));
  EXPECT_EQ(last_window(0, 5, 4, 4), (EvalWindow{0, 0, 4, 0}));
}

TEST(EvalWindows, AreGivenAsManyAtOnceAsMakeSoManyTokens) {
  EXPECT_EQ(windows_at_once(100, 1024), 8);
  EXPECT_EQ(windows_at_once(100, 1000), 8);
  EXPECT_EQ(windows_at_once(3, 1024), 3) << "no more than there are";
  EXPECT_EQ(windows_at_once(100, 8193), 1);
  EXPECT_EQ(windows_at_once(100'000, 1), 8192);
}

// Progress is counted in batches.
TEST(EvalWindows, AreGivenAtOnceUnlessTheirNumberIsSaid) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "hf");
  std::filesystem::create_symlink(TRIDENT_GOLDENS "/gpt2/config.json", folder / "hf/config.json");
  std::filesystem::create_symlink(TRIDENT_GOLDENS "/gpt2/weights.safetensors", folder / "hf/model.safetensors");
  hf_to_checkpoint({folder / "hf"}, folder / "ckpt", std::nullopt);
  EvalOptions of_folder, of_checkpoint;
  of_folder.hf_folder = folder / "hf";
  of_checkpoint.checkpoint = folder / "ckpt";
  const auto done = [](EvalOptions options, const std::vector<std::string>& settings) {
    std::vector<std::int64_t> said;
    std::ostringstream lines;
    LogSink log(lines);
    options.ids = std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    options.sequence = 3;
    options.settings = settings;
    const auto progress = [&](std::int64_t windows, std::int64_t all) {
      EXPECT_EQ(all, 4);
      said.push_back(windows);
    };
    EXPECT_TRUE(run_eval([&] { return options; }, log, *make_cuda_backend(), progress));
    return said;
  };
  const std::vector<std::int64_t> at_once{0, 0}, by_two{0, 0, 2};  // first while weights are read
  EXPECT_EQ(done(of_folder, {}), at_once);
  EXPECT_EQ(done(of_checkpoint, {}), at_once) << "its batch.micro is nobody's choice";
  EXPECT_EQ(done(of_folder, {"batch.micro=2"}), by_two);
  EXPECT_EQ(done(of_checkpoint, {"batch.micro=2"}), by_two);
}

// The number that whoever runs the model wants is halved only where nobody chose it.
TEST(EvalWindows, AreFewerAtOnceWhereMemoryDoesNotAllowIt) {
  ForwardModel model;
  model.config = parse_train_config(R"({"run": {"dir": "none", "steps": 1}, "model": {"model_type": "llama", "vocab_size": 64,
      "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64},
      "batch": {"global": 7, "micro": 7, "sequence": 8}, "data": {"train": "none", "tokenizer": null}})", "test");
  std::int64_t taken = 0;
  const auto run = [&](bool halves) {
    std::ostringstream lines;
    LogSink log(lines);
    model.halves_micro = halves;
    const ForwardKind kind{.check_memory = [](const RunPlan& plan, std::span<const ArenaNeed>) {
      if (plan.config.batch.micro > 2) throw ConfigError("too large");
    }};
    const auto work = [&](const ForwardInputs& inputs, JobRank) { taken = inputs.plan.config.batch.micro; };
    run_forward([&] { return model; }, work, log, *make_cuda_backend(), kind);
    return lines.str();
  };
  EXPECT_EQ(run(true), "1 sequence of 8 tokens at a time, because there is too little memory for 7\n");
  EXPECT_EQ(taken, 1);
  EXPECT_THROW(run(false), ConfigError);
}

// By the rule of lm_eval/api/model.py: spaces at the context's end go over, the two are encoded together, and the continuation is
// what lies behind as many tokens as the context alone has.
TEST(Choices, AreSplitAsLmEvaluationHarnessSplitsThem) {
  const auto tokenizer = load_tokenizer("gpt2");
  const auto expect = [&](std::string_view context, std::string_view continuation, std::string_view before,
                          std::string_view whole) {
    const ChoiceTokens made = encode_choice(*tokenizer, context, continuation);
    const std::vector<std::int32_t> given = tokenizer->encode(before), all = tokenizer->encode(whole);
    EXPECT_EQ(made.scored, std::ssize(all) - std::ssize(given)) << context;
    EXPECT_EQ(made.tokens, all) << context;
  };
  expect("The sky is", " blue", "The sky is", "The sky is blue");
  expect("The sky is  ", "blue", "The sky is", "The sky is  blue");
  expect("Tab\t\n", "x", "Tab", "Tab\t\nx");
  expect("No-break\u00A0\u3000", "x", "No-break", "No-break\u00A0\u3000x");
  expect("Zero width\u200B", " x", "Zero width\u200B", "Zero width\u200B x");  // no white space to Python
  const std::vector<std::int32_t> blue = tokenizer->encode(" blue");
  for (const std::string_view empty : {"", "  "}) {
    const ChoiceTokens made = encode_choice(*tokenizer, empty, " blue");
    EXPECT_EQ(made.tokens.front(), tokenizer->special_ids().eod);
    EXPECT_EQ(made.scored, std::ssize(made.tokens) - 1);
  }
  EXPECT_EQ(encode_choice(*tokenizer, "", " blue").scored, std::ssize(blue));
}

}  // namespace
}  // namespace trident
