// Runs that leave what does not train in the model that they began with: their checkpoints go on, are evaluated and begun with as
// long as that model has the same values, wherever it lies.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_index.h"
#include "core/adapter_spec.h"
#include "core/json_reader.h"
#include "data/indexed_dataset_writer.h"
#include "tests/support/log_text.h"
#include "tests/train/stored_runs.h"
#include "train/launch/added_tokens.h"
#include "train/run/resume.h"

namespace trident::testing {
namespace {

const std::string kLora = "adapter.type=lora", kRank = "adapter.r=2";

// Changes model.norm.weight.
std::string with_another_last_value(std::string file) {
  file[file.size() - 2] = static_cast<char>(file[file.size() - 2] ^ 0x10);
  return file;
}

class StoredBases : public StoredRuns {
 protected:
  void SetUp() override {
    train(settings("donor", of_model({})));
    checkpoint_to_hf(newest(folder_ / "donor/ckpt"), base_, {});
  }
  std::string tune(const std::string& run, const std::vector<std::string>& more, const std::string& from) {
    const std::vector<std::string> all{kLora, kRank, "precision.compute=fp32", "optimizer.lr=1e-2", "lr_schedule.type=constant",
                                       "log.every=1", "model.init_from=" + from};
    return train(settings(run, of_model(plus(all, more))));
  }
  std::string tune(const std::string& run, const std::vector<std::string>& more) { return tune(run, more, base_); }
  // A model of the same shapes with other values.
  std::string other_base() {
    train(settings("other", of_model({"run.seed=5"})));
    checkpoint_to_hf(newest(folder_ / "other/ckpt"), folder_ / "other_base", {});
    return folder_ / "other_base";
  }
  Manifest manifest_of(const std::string& run) const { return open_manifest(newest(folder_ / (run + "/ckpt"))); }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> losses;
    for (const JsonValue& entry : json_lines(read_file(folder_ / (run + "/metrics.jsonl"))))
      if (const JsonValue* const loss = entry.find("loss")) losses.push_back(loss->as_number());
    return losses;
  }
  void copy(const std::string& from, const std::string& to) const {
    std::filesystem::copy(folder_ / from, folder_ / to, std::filesystem::copy_options::recursive);
  }
  void use(const std::string& run, const std::vector<std::string>& more = {}) {
    generate([&](GenerateOptions& options) {
      options.checkpoint = folder_ / (run + "/ckpt");
      options.settings = more;
    });
  }

  // Pairs of answers to two tokens each.
  void write_pairs() const {
    IndexedDatasetWriter writer(folder_ / "pairs", kStoredVocab, Overwrite::kYes, WithMask::kYes);
    for (std::int32_t p = 0; p < 12; ++p) {
      for (const std::int32_t answer : {20, 40})
        writer.add_sequence(std::vector<std::int32_t>{p, p + 1, answer + p, answer}, std::vector<std::uint8_t>{0, 0, 1, 1});
      writer.end_document();
    }
    DatasetOrigin origin;
    origin.pairs = true;
    writer.finish(origin);
  }

  // Stages share a tied weight, tensor ranks a head of keys.
  static std::vector<std::string> of_model(const std::vector<std::string>& more) {
    return plus({"model.num_hidden_layers=2", "model.num_key_value_heads=1", "model.tie_word_embeddings=true"}, more);
  }

  const std::string base_ = folder_ / "base";
};

TEST_F(StoredBases, ACheckpointHoldsWhatTrainsAndTheHashesOfTheRest) {
  tune("run", {});
  const Manifest manifest = manifest_of("run");
  EXPECT_EQ(manifest.base, base_);
  std::int64_t trained = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    EXPECT_EQ(tensor.frozen, !is_adapter_tensor(tensor.name)) << tensor.name;
    EXPECT_EQ(tensor.base.has_value(), tensor.frozen) << tensor.name;
    if (!tensor.frozen) trained += whole(tensor.shape).elements();
  }
  std::int64_t stored = 0;
  for (const ManifestFile& file : manifest.files) stored += file.bytes - file.table_bytes;
  EXPECT_EQ(stored, trained * 4 * 3) << "weights and two states";
  const std::string checkpoint = newest(folder_ / "run/ckpt");
  EXPECT_EQ(check_checkpoint(checkpoint, manifest), std::vector<std::string>());
  StoredTensors a(checkpoint), b(checkpoint);
  EXPECT_TRUE(compare_checkpoints(a, b).is_equal());
  use("run");
  tune("weights", {"checkpoint.content=weights", "parallel.pipeline=2"});
  EXPECT_EQ(manifest_of("weights").tensors, manifest.tensors);
  use("weights");
}

TEST_F(StoredBases, EveryLayoutGoesOnAsOneThatNeverStopped) {
  const std::vector<std::string> sharded{"parallel.tensor=2", "parallel.data=2", "parallel.zero=zero3"};
  tune("whole", plus(sharded, {"run.steps=4"}));
  tune("run", plus(sharded, {"run.steps=2"}));
  for (const std::string run : {"again", "pipeline", "data", "alone"}) copy("run", run);
  const std::string four = "run.steps=4";
  tune("again", plus(sharded, {four}));
  tune("pipeline", {"parallel.pipeline=2", four});
  tune("data", {"parallel.data=2", "parallel.zero=ddp", four});
  tune("alone", {four});
  EXPECT_EQ(losses("again"), losses("whole"));
  EXPECT_EQ(losses("alone"), losses("pipeline"));
  for (const std::string run : {"alone", "data"}) {
    ASSERT_EQ(losses(run).size(), 4u);
    for (std::size_t step = 0; step < 4; ++step) EXPECT_NEAR(losses(run)[step], losses("whole")[step], 1e-5) << run << step;
  }
  for (const std::string run : {"again", "pipeline", "data", "alone"})
    EXPECT_EQ(manifest_of(run).tensors, manifest_of("run").tensors) << run << ": hashes depend on the layout";
  for (const auto& layout :
       {std::vector<std::string>{"parallel.pipeline=2", "parallel.tensor=2"}, {"parallel.data=2", "parallel.zero=ddp"}, {}}) {
    tune("fresh", plus(layout, {"run.overwrite=true"}));
    EXPECT_EQ(manifest_of("fresh").tensors, manifest_of("run").tensors) << "hashes depend on the layout that read the base";
  }
}

TEST_F(StoredBases, ABaseMayMoveAndIsFoundAgainWhenItIsNamed) {
  tune("whole", {"run.steps=3"});
  tune("run", {});
  const std::string moved = folder_ / "moved";
  std::filesystem::rename(base_, moved);
  const std::vector<std::string> says{base_ + ", and nothing is there any more", "--set model.init_from=DIR"};
  expect_error<ConfigError>([&] { tune("run", {"run.steps=3"}); }, says);
  expect_error<ConfigError>([&] { use("run"); }, says);
  expect_error<ConfigError>([&] { tune("run", {"run.steps=3"}, folder_ / "nowhere"); }, {base_, folder_ / "nowhere"});
  expect_error<ConfigError>([&] { tune("run", {"run.steps=3"}, folder_ / "mvoed"); }, {"convert); did you mean \"moved\"?"});
  use("run", {"model.init_from=" + moved});
  tune("run", {"run.steps=3"}, moved);
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(manifest_of("run").base, moved);
  use("run");
  checkpoint_to_peft(newest(folder_ / "run/ckpt"), folder_ / "peft");  // needs no base
  write_file(moved + "/tokenizer.json", "{");  // nor one that is read
  const std::string config = read_file(moved + "/config.json");
  write_file(moved + "/config.json", "{");
  const ConvertReport report = checkpoint_to_peft(newest(folder_ / "run/ckpt"), folder_ / "beside_damaged");
  EXPECT_EQ(read_file(folder_ / "beside_damaged/adapter_model.safetensors"), read_file(folder_ / "peft/adapter_model.safetensors"));
  EXPECT_EQ(read_file(folder_ / "beside_damaged/adapter_config.json"), read_file(folder_ / "peft/adapter_config.json"));
  EXPECT_TRUE(std::ranges::any_of(report.warnings, [&](const std::string& warning) { return contains(warning, moved); }));
  write_file(moved + "/config.json", config);
  // The same values in another form.
  hf_to_checkpoint({moved}, folder_ / "form", {});
  std::filesystem::remove_all(moved);
  tune("run", {"run.steps=4"}, folder_ / "form");
  EXPECT_EQ(manifest_of("run").base, folder_ / "form");
}

TEST_F(StoredBases, AnotherBaseIsRefused) {
  tune("run", {});
  const std::string file = base_ + "/model.safetensors", content = read_file(file);
  write_file(file, with_another_last_value(content));
  const std::vector<std::string> says{"are those of " + base_, "has other values in " + base_, "--set model.init_from=DIR"};
  expect_error<ConfigError>([&] { tune("run", {"run.steps=3"}); }, says);
  expect_error<ConfigError>([&] { tune("run", {"run.steps=3", "parallel.pipeline=2", "parallel.tensor=2"}); }, says);
  expect_error<ConfigError>([&] { use("run"); }, says);
  // One that was never its base, of the same shapes and of others.
  write_file(file, content);
  train(settings("other", of_model({"run.seed=5"})));
  const std::string other = newest(folder_ / "other/ckpt");
  expect_error<ConfigError>([&] { tune("run", {"run.steps=3"}, other); },
                            {base_, "model.embed_tokens.weight has other values in " + other});
  train(settings("shallow", of_model({"model.num_hidden_layers=1"})));
  expect_error<ConfigError>([&] { tune("run", {"run.steps=3"}, folder_ / "shallow"); },
                            {base_, "has no model.layers.1.input_layernorm.weight of that shape"});
  EXPECT_TRUE(contains(tune("run", {"run.steps=3"}), "goes on from step 2"));
}

// Its names and shapes are equal.
TEST_F(StoredBases, AnAdapterBesideAnotherBaseIsRefusedWhereItsFolderSaysTheValues) {
  const std::string other = other_base(), peft = folder_ / "peft", file = peft + "/adapter_model.safetensors";
  tune("run", {});
  checkpoint_to_peft(newest(folder_ / "run/ckpt"), peft);
  const std::string from = "adapter.init_from=" + peft;
  const std::vector<std::string> says{"adapter.init_from = ", peft + ": was trained beside " + base_ + ", and " + other +
                                                              " has other values in model.embed_tokens.weight"};
  expect_error<ConfigError>([&] { tune("no", {from}, other); }, says);
  expect_error<ConfigError>([&] { tune("no", {from, "parallel.tensor=2", "parallel.pipeline=2"}, other); }, says);
  const std::vector<std::string> sharded{from, "precision.compute=bf16", "parallel.data=2", "parallel.zero=zero3"};
  EXPECT_FALSE(contains(tune("on", sharded), "cannot be checked"));
  // More rows than then: the tensor is another one, and the others are compared.
  tune("wide", {from, "model.vocab_size=64"});
  expect_error<ConfigError>([&] { tune("no", {from, "model.vocab_size=64"}, other); }, {"other values in model.layers.0."});
  // PEFT's own file says nothing of values.
  write_file(file, replaced(read_file(file), "trident.base_values", "unknown.base_values"));
  EXPECT_TRUE(contains(tune("peft", {from}, other), "it says of its base the name \"" + base_ + "\", and no values"));
}

// Whoever merges it compares the values, too, in every layout that reads them.
TEST_F(StoredBases, AnAdapterIsMergedIntoItsOwnBaseAlone) {
  const std::string other = other_base();
  for (const std::string type : {"lora", "dora"}) {
    SCOPED_TRACE(type);
    tune(type, {"adapter.type=" + type});
    const std::string peft = folder_ / (type + "_peft");
    checkpoint_to_peft(newest(folder_ / (type + "/ckpt")), peft);
    const auto generate_beside = [&](const std::string& base, const std::vector<std::string>& layout) {
      generate([&](GenerateOptions& options) {
        options.hf_folder = base, options.adapter = peft;
        options.settings = layout;
      });
    };
    const auto expect_refused = [&](const std::string& base) {
      const std::vector<std::string> says{peft + ": was trained beside " + base_ + ", and " + base + " has other values in model."};
      expect_error<ConfigError>([&] { peft_to_hf({base, peft}, folder_ / "no", {}); }, says);
      expect_error<ConfigError>([&] { hf_to_checkpoint({base, peft}, folder_ / "no", {}); }, says);
      for (const std::vector<std::string>& layout :
           {std::vector<std::string>{}, {"parallel.tensor=2"}, {"parallel.pipeline=2"}})
        expect_error<ConfigError>([&] { generate_beside(base, layout); }, says);
      EXPECT_FALSE(file_exists(folder_ / "no"));
    };
    expect_refused(other);
    const std::string file = base_ + "/model.safetensors", content = read_file(file);
    write_file(file, with_another_last_value(content));  // of a tensor without an adapter
    expect_refused(base_);
    write_file(file, content);
    for (const std::vector<std::string>& layout : {std::vector<std::string>{}, {"parallel.tensor=2", "parallel.pipeline=2"}})
      generate_beside(base_, layout);
    peft_to_hf({base_, peft}, folder_ / (type + "_hf"), {});
    hf_to_checkpoint({base_, peft}, folder_ / (type + "_ckpt"), {});
  }
  // Rows that training added to what does not train are not in the base.
  tune("grown", {"model.vocab_size=64"});
  const std::string peft = folder_ / "grown_peft", file = base_ + "/model.safetensors", content = read_file(file);
  checkpoint_to_peft(newest(folder_ / "grown/ckpt"), peft);
  peft_to_hf({base_, peft}, folder_ / "grown_hf", {});
  std::string changed = content;
  changed[static_cast<std::size_t>(open_hf(base_, TiedCopies::kTrusted)->find("model.embed_tokens.weight")->begin) + 2] ^= 0x10;
  write_file(file, changed);
  expect_error<ConfigError>([&] { peft_to_hf({base_, peft}, folder_ / "no", {}); },
                            {"has other values in model.embed_tokens.weight"});
  write_file(file, content);
  // The folder may not say the base's name.
  const std::string path = folder_ / "lora_peft/adapter_config.json";
  JsonValue json = read_json_file(path);
  json.set("base_model_name_or_path", nullptr);
  write_file(path, to_json_text(json));
  expect_error<ConfigError>([&] { peft_to_hf({other, folder_ / "lora_peft"}, folder_ / "no", {}); },
                            {"lora_peft: was trained beside a base that it does not name, and " + other});
}

// The checkpoints of a run that goes on beside another base by consent have that one.
TEST_F(StoredBases, AnotherBaseNeedsConsent) {
  const std::string other = other_base(), consent = "checkpoint.allow=model.init_from";
  tune("run", {});
  copy("run", "first");
  const Manifest before = manifest_of("run");
  EXPECT_TRUE(contains(tune("run", {"run.steps=3", consent}, other), "model.embed_tokens.weight has other values in " + other));
  EXPECT_EQ(manifest_of("run").base, other);
  EXPECT_NE(manifest_of("run").tensors, before.tensors);
  use("run");
  tune("run", {"run.steps=4"}, other);
  checkpoint_to_peft(newest(folder_ / "first/ckpt"), folder_ / "peft");
  EXPECT_TRUE(contains(tune("from", {"adapter.init_from=" + (folder_ / "peft"), consent}, other), "was trained beside " + base_));
  checkpoint_to_peft(newest(folder_ / "from/ckpt"), folder_ / "from_peft");
  peft_to_hf({other, folder_ / "from_peft"}, folder_ / "merged", {});
  use("run");
  const std::string block = "checkpoint.allow=model";
  expect_error<ConfigError>([&] { tune("run", {"run.steps=5", block}, base_); }, {"frozen weights are those of " + other, base_});

  // The reference's log-probabilities are of the old base.
  write_pairs();
  const std::vector<std::string> pairs{"data.train=" + (folder_ / "pairs"), "data.samples=packed", "loss.type=dpo",
                                       "batch.sequence=16"};
  tune("judged", pairs);
  expect_error<ConfigError>([&] { tune("judged", plus(pairs, {"run.steps=3", consent}), other); },
                            {"frozen weights are those of " + base_, other, "log-probabilities are of the old base; begin anew"});
  // A reference beside another base than its own is another reference.
  const std::string file = base_ + "/model.safetensors";
  write_file(file, with_another_last_value(read_file(file)));
  const std::vector<std::string> asking = plus(pairs, {"reference=" + newest(folder_ / "first/ckpt"), consent});
  expect_error<ConfigError>([&] { tune("asks", asking, folder_ / "run/ckpt"); },
                            {"frozen weights are those of " + base_, "has other values in " + base_ + " now"});
}

TEST_F(StoredBases, AddedTokensAreLookedForAsFarAsAStartHasTime) {
  Documents documents(40, std::vector<std::int32_t>(9, 1));
  documents.back().back() = kStoredVocab;
  write_dataset(folder_ / "added", documents, 64);
  const std::string two_ends = "model.tie_word_embeddings=false", base = folder_ / "untied_base";
  train(settings("untied", of_model({two_ends})));
  checkpoint_to_hf(newest(folder_ / "untied/ckpt"), base, {});
  const TrainConfig config = parse_train_config(
      kStoredConfig, "test", settings("none", of_model({two_ends, kLora, "model.init_from=" + base, "model.vocab_size=64"})));
  const std::vector<WeightedPath> added{{folder_ / "added", 1}};
  const std::vector<TokenSource> sources = open_token_sources(added, {}, {}).train;
  const std::vector<ManifestTensor> frozen{{"model.embed_tokens.weight", {64, 8}, true}, {"lm_head.weight", {64, 8}, true}};
  const auto look = [&](std::int64_t most) {
    return refuse_frozen_rows(config, frozen, find_initial(config).value(), sources, most).value_or("");
  };
  expect_error<ConfigError>([&] { look(360); }, {"added has one of those tokens as a target, its token 359",
                                                "name embed_tokens and lm_head in adapter.modules_to_save"});
  EXPECT_TRUE(contains(look(359), "added has none of those tokens (of each source the first 359 tokens were read)"));
}

TEST_F(StoredBases, AnAdapterRunBeginsWithTheCheckpointOfAnother) {
  tune("first", {});
  tune("second", {}, folder_ / "first");
  EXPECT_EQ(manifest_of("second").base, newest(folder_ / "first/ckpt"));
  tune("second", {"run.steps=3", "parallel.tensor=2"}, folder_ / "first");
  use("second");
  std::filesystem::remove_all(folder_ / "first");
  expect_error<ConfigError>([&] { use("second"); }, {"first/ckpt", "nothing is there any more"});
  tune("second", {"run.steps=4"});  // has the same frozen values
  EXPECT_EQ(manifest_of("second").base, base_);
}

// Weights in bf16 are rounded from the masters of the base, which are what counts.
TEST_F(StoredBases, TheMastersOfABaseCount) {
  train(settings("half", of_model({"precision.compute=bf16", "precision.stochastic_rounding=true"})));
  tune("run", {"precision.compute=bf16"}, folder_ / "half");
  tune("whole", {"precision.compute=bf16", "run.steps=3"}, folder_ / "half");
  tune("run", {"precision.compute=bf16", "run.steps=3", "parallel.pipeline=2"}, folder_ / "half");
  EXPECT_EQ(losses("run"), losses("whole"));
  tune("run", {"precision.compute=fp32", "run.steps=4"}, folder_ / "half");
}

TEST_F(StoredBases, WithoutABaseAllIsStored) {
  train(settings("run", of_model({kLora, kRank, "precision.compute=fp32"})));
  EXPECT_EQ(manifest_of("run").base, "");
  tune("run", {"run.steps=3"});  // which is not where these came from
  const Manifest manifest = manifest_of("run");
  EXPECT_EQ(manifest.base, "");
  EXPECT_TRUE(std::ranges::none_of(manifest.tensors, [](const ManifestTensor& tensor) { return tensor.base.has_value(); }));
  expect_error<ConfigError>([&] { use("run", {"model.init_from=" + base_}); }, {"has all weights", "leave it out"});
}

TEST_F(StoredBases, MagnitudesBeginAsTheLengthsOfTheBasesRows) {
  tune("lora", {"run.steps=1"});
  tune("dora", {"adapter.type=dora", "run.steps=1"});
  tune("sharded", {"adapter.type=dora", "run.steps=1", "parallel.tensor=2", "parallel.data=2", "parallel.zero=zero3"});
  for (const std::string run : {"dora", "sharded"})
    EXPECT_NEAR(losses(run).at(0), losses("lora").at(0), 1e-6) << run << ": such magnitudes change nothing";
}

TEST_F(StoredBases, ARunBeginsWithTheAdaptersOfAPeftFolder) {
  for (const std::string type : {"lora", "dora"}) {
    SCOPED_TRACE(type);
    const std::string peft = folder_ / (type + "_peft"), merged = folder_ / (type + "_merged");
    tune(type, {"adapter.type=" + type, "adapter.alpha=3", "adapter.target_modules=[\"q_proj\",\"down_proj\"]", "run.steps=3"});
    checkpoint_to_peft(newest(folder_ / (type + "/ckpt")), peft);
    hf_to_checkpoint({base_, peft}, merged, {});
    const std::vector<std::string> numbers{"precision.compute=fp32", "optimizer.lr=1e-3", "lr_schedule.type=constant",
                                           "log.every=1"};
    const auto begin = [&](const std::string& run, const std::vector<std::string>& more) {
      return train(settings(run, of_model(plus(more, numbers))));
    };
    begin(type + "_beside", {"model.init_from=" + merged, "adapter.type=lora", "run.steps=1"});
    const std::string base = "model.init_from=" + base_, from = "adapter.init_from=" + peft, one = type + "_from";
    EXPECT_TRUE(contains(begin(one, {base, from}), "begins with the adapters of " + peft));
    EXPECT_NEAR(losses(one).at(0), losses(type + "_beside").at(0), 1e-5);
    begin(type + "_sharded", {base, from, "parallel.tensor=2", "parallel.data=2", "parallel.zero=zero3", "adapter.alpha=3"});
    for (std::size_t step = 0; step < 2; ++step) EXPECT_NEAR(losses(type + "_sharded").at(step), losses(one).at(step), 1e-5);
    const JsonValue recorded = *manifest_of(one).config.find("adapter");
    EXPECT_EQ(recorded.find("init_from")->as_string(), peft);
    EXPECT_EQ(recorded.find("type")->as_string(), type);
    EXPECT_EQ(recorded.find("r")->as_integer(), 2);
    checkpoint_to_peft(newest(folder_ / (one + "/ckpt")), folder_ / (one + "_peft"));
    // It goes on; without the folder, too, where the configuration says what adapters it has.
    begin(one, {base, from, "run.steps=3"});
    const std::string says = peft + "/adapter_config.json says ";
    expect_error<ConfigError>([&] { begin("no", {base, from, "adapter.r=4"}); }, {"adapter.r = 4: " + says + "2"});
    expect_error<ConfigError>([&] { begin("no", {base, from, "adapter.rslora=true"}); },
                              {"adapter.rslora = true: " + says + "false"});
    expect_error<ConfigError>([&] { begin("no", {base, from, "adapter.target_modules=[\"q_proj\"]"}); },
                              {"adapter.target_modules: leaves model.layers.0.mlp.down_proj without an adapter, and " + peft});
    expect_error<ConfigError>([&] { begin("no", {from}); }, {"adapter.init_from = ", "name the base", "model.init_from"});
    const std::string file = peft + "/adapter_config.json", text = read_file(file);
    const auto refuse = [&](const char* key, JsonValue value, const std::vector<std::string>& parts) {
      JsonValue changed = parse_json(text, file);
      changed.set(key, std::move(value));
      write_file(file, to_json_text(changed));
      expect_error<ConfigError>([&] { begin("no", {base, from, "model.tie_word_embeddings=false"}); }, parts);
    };
    refuse("lora_alpha", 0, {file + ": adapter.alpha = 0", "must be a number > 0"});
    refuse("lora_alpha", JsonValue(), {file + ": lora_alpha", "must have a value"});
    refuse("lora_dropout", 1, {file + ": adapter.dropout = 1", "must be a number >= 0 and < 1"});
    refuse("target_modules", JsonValue::Array{"lm_head"}, {file + ": target_modules", "no adapter of lm_head", "merge it"});
    write_file(file, text);
    std::filesystem::remove_all(peft);
    expect_error<DataError>([&] { begin(one, {base, from, "run.steps=4"}); }, {"adapter.init_from = ", "is not there"});
    begin(one, {base, from, "run.steps=4", "adapter.type=" + type, "adapter.r=2", "adapter.alpha=3",
                "adapter.target_modules=" + to_json_text(*recorded.find("target_modules"))});
    EXPECT_EQ(losses(one).size(), 4u);
  }
}

// Nothing moves at this rate, so that a run writes the values that it began with.
TEST_F(StoredBases, ARunBeginsWithTheCopiesOfAPeftFolderInEveryLayout) {
  for (const std::string tied : {"tied", "untied"}) {
    SCOPED_TRACE(tied);
    const auto begin = [&](const std::string& run, std::vector<std::string> more) {
      more.insert(more.begin(), {"model.num_hidden_layers=2", "model.num_key_value_heads=1", "precision.compute=fp32",
                                 "model.tie_word_embeddings=" + std::string(tied == "tied" ? "true" : "false"),
                                 "lr_schedule.type=constant", "log.every=1", "run.overwrite=true"});
      return train(settings(tied + run, more));
    };
    const auto weights_of = [&](const std::string& run) {
      const std::string folder = folder_ / (tied + run + "_out");
      std::filesystem::remove_all(folder);
      checkpoint_to_peft(newest(folder_ / (tied + run + "/ckpt")), folder);
      return read_file(folder + "/adapter_model.safetensors");
    };
    begin("donor", {"run.seed=7"});
    checkpoint_to_hf(newest(folder_ / (tied + "donor/ckpt")), folder_ / (tied + "base"), {});
    const std::string base = "model.init_from=" + (folder_ / (tied + "base")), peft = folder_ / (tied + "tuned_out");
    const std::string from = "adapter.init_from=" + peft, wide = "model.vocab_size=64", still = "optimizer.lr=1e-30";
    begin("tuned", {base, kLora, kRank, R"(adapter.modules_to_save=["embed_tokens","lm_head","model.norm"])", wide,
                    "optimizer.lr=1e-2"});
    const std::string values = weights_of("tuned");
    for (const std::vector<std::string>& layout :
         {std::vector<std::string>{}, {"parallel.tensor=2", "parallel.data=2", "parallel.zero=zero3"},
          {"parallel.pipeline=2", "parallel.tensor=2"}, {"parallel.data=2", "parallel.zero=zero1", "precision.compute=bf16"}}) {
      const std::string said = begin("still", plus({base, from, wide, still, "run.steps=1"}, layout));
      EXPECT_FALSE(contains(said, "each the mean")) << "the folder has these rows";
      EXPECT_EQ(weights_of("still"), values) << (layout.empty() ? "" : layout.front());
      for (const ManifestTensor& tensor : manifest_of(tied + "still").tensors)
        EXPECT_EQ(tensor.base.has_value(), tensor.name.starts_with("model.layers.") && !is_adapter_tensor(tensor.name));
    }
    // The model that was merged from the folder says the same of the data.
    hf_to_checkpoint({folder_ / (tied + "base"), peft}, folder_ / (tied + "merged"), {});
    begin("beside", {"model.init_from=" + (folder_ / (tied + "merged")), wide, "adapter.type=lora", "run.steps=1"});
    begin("from", {base, from, wide, R"(adapter.modules_to_save=["embed_tokens","model.norm","lm_head"])", "run.steps=1"});
    EXPECT_NEAR(losses(tied + "from").at(0), losses(tied + "beside").at(0), 1e-5);
    begin("from", {base, from, wide, "run.steps=3", "run.overwrite=false"});
    const std::string moved = folder_ / (tied + "moved");
    std::filesystem::rename(folder_ / (tied + "base"), moved);
    std::vector<std::string> on{"model.init_from=" + moved, from, "run.steps=4", "run.overwrite=false"};
    expect_error<ConfigError>([&] { begin("from", on); }, {"model.vocab_size = 61 (was 64): "});
    on.push_back(wide);
    begin("from", on);
    EXPECT_EQ(manifest_of(tied + "from").base, moved);
    std::filesystem::rename(moved, folder_ / (tied + "base"));
    EXPECT_TRUE(contains(begin("wider", {base, from, "model.vocab_size=72", "run.steps=1"}), peft + " has 64 tokens; 8 rows"));
    expect_error<ConfigError>([&] { begin("no", {base, from}); }, {peft, "has copies for 64 tokens", "model.vocab_size is 61"});
    expect_error<ConfigError>([&] { begin("no", {base, from, wide, R"(adapter.modules_to_save=["embed_tokens","lm_head"])"}); },
                              {"adapter.modules_to_save: leaves model.norm.weight without a trained copy, and " + peft});
    // PEFT saves the ends of a resized model, also where they did not train.
    JsonValue json = read_json_file(peft + "/adapter_config.json");
    json.set("modules_to_save", JsonValue::Array{"model.norm"});
    write_file(peft + "/adapter_config.json", to_json_text(json));
    expect_error<ConfigError>([&] { begin("no", {base, from, wide}); },
                              {"has model.embed_tokens.weight of 64 tokens, which did not train, and ", "has 61; merge it"});
  }
}

TEST_F(StoredBases, PartOfAModelTrainsBesideItsBase) {
  train(settings("run", of_model({"model.init_from=" + base_, R"(train.only="model\\.layers\\.1\\..*")"})));
  const Manifest manifest = manifest_of("run");
  for (const ManifestTensor& tensor : manifest.tensors)
    EXPECT_EQ(tensor.base.has_value(), !tensor.name.starts_with("model.layers.1.")) << tensor.name;
  const std::string checkpoint = newest(folder_ / "run/ckpt");
  evaluate_and_convert(checkpoint);
  checkpoint_to_hf(checkpoint, folder_ / "out", {});
  write_file(base_ + "/model.safetensors", read_file(folder_ / "out/model.safetensors"));  // frozen values are as they were
  evaluate_and_convert(checkpoint);
  write_file(base_ + "/model.safetensors", with_another_last_value(read_file(base_ + "/model.safetensors")));
  expect_error<ConfigError>([&] { checkpoint_to_hf(checkpoint, folder_ / "again", {}); }, {"has other values in " + base_});
}

// One tensor rank has q, k and v in one parameter, two have k and v in another: what is stored is the same.
TEST_F(StoredBases, PartOfAFusedParameterTrainsBesideItsBase) {
  const auto train_some = [&](const std::string& run, const std::vector<std::string>& more) {
    train(settings(run, of_model(plus(more, {"model.init_from=" + base_, R"(train.only=".*v_proj\\.weight")",
                                             "precision.compute=bf16", "lr_schedule.type=constant", "log.every=1"}))));
  };
  train_some("whole", {"run.steps=4"});
  train_some("run", {"run.steps=2"});
  const Manifest manifest = manifest_of("run");
  std::int64_t stored = 0, trained = 0;
  for (const ManifestFile& file : manifest.files) stored += file.bytes - file.table_bytes;
  for (const ManifestTensor& tensor : manifest.tensors) {
    EXPECT_EQ(tensor.base.has_value(), !contains(tensor.name, "v_proj")) << tensor.name;
    if (!tensor.base) trained += whole(tensor.shape).elements();
  }
  EXPECT_EQ(stored, trained * (2 + 4 * 3)) << "weights, masters and two states";
  evaluate_and_convert(newest(folder_ / "run/ckpt"));
  copy("run", "two");
  train_some("run", {"run.steps=4"});
  EXPECT_EQ(losses("run"), losses("whole"));
  train_some("two", {"run.steps=4", "parallel.tensor=2"});
  EXPECT_EQ(manifest_of("two").tensors, manifest.tensors);
}

}  // namespace
}  // namespace trident::testing
