// Tests what a configuration may say, and what it then means.

#include <cstdint>
#include <optional>

#include "tests/support/error_text.h"
#include "tests/train/config_support.h"
#include "train/config/option_docs.h"
#include "train/config/option_table.h"
#include "train/config/option_values.h"

namespace trident {
namespace {

using testing_support::kSmall;
using testing_support::refusal;
using testing_support::small_with;

// The small configuration with these keys of a model in place of its preset.
std::string with_model(std::string_view keys) { return replaced(kSmall, R"("preset": "llama-1m")", keys); }

// The documented example of a complete file, its unbuilt features set to their neutral values.
const char* const kComplete = R"({
  "$schema": "./trident.schema.json",
  "run":      { "dir": "runs/tiny", "seed": 1234, "steps": 200, "max_minutes": 0, "threads_per_rank": 1, "pin": true },
  "device":   "auto",                               // auto | cpu | cuda
  "model":    { "preset": "llama-60m", "init_from": null, "dropout": 0.0 },
  "parallel": { "data": 2, "pipeline": 4, "tensor": 4, "context": 1, "virtual_stages": 1, "schedule": "1f1b",
                "sequence_parallel": true, "zero": "zero1", "grad_sync": null, "param_gather": null, "layers": null,
                "order": "tp-cp-dp-pp", "overlap": true, "bucket_mb": 25 },
  "batch":    { "global": 64, "micro": 2, "sequence": 512 },
  "precision":{ "compute": "bf16", "master": "fp32", "reduce": "fp32", "loss_scale": null },
  "recompute":{ "policy": "none", "head_chunk": 256 },
  "optimizer":{ "type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 1.0 },
  "lr_schedule": { "type": "cosine", "warmup_steps": 20, "min_lr": 3e-5 },
  "data":     { "train": [{ "path": "corpus/text", "weight": 1.0 }], "valid": "corpus/valid", "split": null,
                "shuffle": true, "tokenizer": "gpt2" },
  "eval":     { "every": 0, "steps": 10 },
  "checkpoint": { "dir": "runs/tiny/ckpt", "every": 0, "keep_last": 3, "keep_every": 0, "resume": null },
  "log":      { "every": 10, "tensorboard": false, "trace_steps": [], "report": false, "on_error": "continue" },
  "debug":    { "no_alloc": false, "check_collectives": true }
})";

TEST(ConfigAccepts, TheCompleteExample) {
  const TrainConfig c = parse_train_config(kComplete, "c.json");
  EXPECT_EQ(c.run.dir, "runs/tiny");
  EXPECT_EQ(c.run.steps, 200);
  EXPECT_EQ(c.model.preset, "llama-60m");
  EXPECT_EQ(c.model.dropout, 0.0);
  EXPECT_EQ(c.parallel.data, 2);
  EXPECT_EQ(c.parallel.pipeline, 4);
  EXPECT_EQ(c.parallel.tensor, 4);
  EXPECT_TRUE(c.parallel.sequence_parallel);
  EXPECT_EQ(c.parallel.zero, ZeroPreset::kZero1);
  EXPECT_EQ(c.batch.global, 64);
  EXPECT_EQ(c.batch.micro, 2);
  EXPECT_EQ(c.precision.compute, ComputeFormat::kBf16);
  EXPECT_EQ(c.recompute.head_chunk, 256);
  EXPECT_EQ(c.optimizer.betas, (std::array<double, 2>{0.9, 0.95}));
  EXPECT_EQ(c.lr_schedule.min_lr, 3e-5);
  ASSERT_EQ(c.data.train.size(), 1u);
  EXPECT_EQ(c.data.valid.at(0).path, "corpus/valid");
  EXPECT_EQ(c.checkpoint.keep_last, 3);
  EXPECT_EQ(c.checkpoint.resume.kind, ResumeFrom::Kind::kNewest);
  EXPECT_EQ(c.run.threads_per_rank, 1);
}

TEST(ConfigAccepts, DefaultsComeFromTheTable) {
  const TrainConfig c = small_with({});
  EXPECT_EQ(c.run.seed, 1234);
  EXPECT_EQ(c.run.threads_per_rank, std::nullopt) << "auto";
  EXPECT_FALSE(c.run.overwrite);
  EXPECT_EQ(c.parallel.data, std::nullopt);
  EXPECT_EQ(c.parallel.schedule, ScheduleKind::k1f1b);
  EXPECT_EQ(c.recompute.head_chunk, 0);
  EXPECT_EQ(c.optimizer.lr, 3e-4);
  EXPECT_EQ(c.optimizer.eps, 1e-8);
  EXPECT_EQ(c.model.dropout, std::nullopt);
  EXPECT_EQ(c.lr_schedule.type, LrScheduleType::kCosine);
  EXPECT_EQ(c.log.every, 10);
  EXPECT_TRUE(c.log.tensorboard);
  EXPECT_TRUE(c.log.trace_steps.empty());
  EXPECT_TRUE(c.log.report);
  EXPECT_FALSE(small_with({"log.report=false"}).log.report);
  EXPECT_EQ(c.log.on_error, OnError::kContinue);
  EXPECT_EQ(small_with({"log.on_error=stop"}).log.on_error, OnError::kStop);
  EXPECT_EQ(c.run.hardware_profile, std::nullopt);
  EXPECT_EQ(c.log.prometheus, std::nullopt);
  EXPECT_FALSE(c.log.verbose);
  EXPECT_TRUE(small_with({"log.verbose=true"}).log.verbose);
  EXPECT_EQ(small_with({"log.prometheus=here.prom"}).log.prometheus, "here.prom");
  EXPECT_EQ(small_with({"run.hardware_profile=here.json"}).run.hardware_profile, "here.json");
  EXPECT_TRUE(small_with({"log.trace_steps=null"}).log.trace_steps.empty());
  EXPECT_EQ(small_with({"log.trace_steps=[2,2]", "run.steps=2"}).log.trace_steps, (std::vector<std::int64_t>{2, 2}));
  const TrainConfig floats = small_with({"log.trace_steps=[1.0,2e0]", "run.steps=2", "parallel.grad_sync={\"every\":1e0}"});
  EXPECT_EQ(floats.log.trace_steps, (std::vector<std::int64_t>{1, 2})) << "numbers that are integers";
  EXPECT_TRUE(c.debug.check_collectives);
  EXPECT_EQ(c.cuda, CudaOptions()) << "the table's defaults are the structure's";
  EXPECT_EQ(keys_set_in(c, "cuda"), std::vector<std::string>());
  EXPECT_EQ(keys_set_in(small_with({"cuda.graphs=true", "cuda.tf32=true", "cuda.nccl_timeout=590"}), "cuda"),
            (std::vector<std::string>{"cuda.tf32", "cuda.graphs"}));
  EXPECT_EQ(small_with({"device=gpu"}).device, small_with({"device=cuda"}).device);
  EXPECT_EQ(small_with({"device=cpu", "cuda.autotune=choices.json"}).cuda.autotune, "choices.json") << "accepted on CPUs, too";
  EXPECT_EQ(small_with({"cuda.nccl_max_ctas=4"}).cuda.nccl_max_ctas, (NcclMaxCtas{4, 4, 4}));
  EXPECT_EQ(small_with({"cuda.nccl_max_ctas={\"dp\": 4, \"tp\": 16}"}).cuda.nccl_max_ctas, (NcclMaxCtas{16, 4, 0}));
  EXPECT_TRUE(small_with({"cuda.nccl_any_order=true", "cuda.nccl_max_ctas=4"}).cuda.nccl_any_order);
  EXPECT_TRUE(small_with({"cuda.nccl_any_order=true", "cuda.nccl_max_ctas={\"dp\": 4, \"tp\": 16, \"pp\": 1}"})
                  .cuda.nccl_any_order);
  EXPECT_EQ(small_with({"cuda.spare_multiprocessors=8"}).cuda.spare_multiprocessors, 8);
  EXPECT_TRUE(small_with({"cuda.graphs=true"}).cuda.graphs);
  EXPECT_TRUE(small_with({"cuda.epilogues=true"}).cuda.epilogues);
  EXPECT_EQ(c.checkpoint.every, (SaveInterval{.steps = 0, .at_end = true}));
}

TEST(ConfigAccepts, LossScales) {
  const auto scale = [](const std::vector<std::string>& settings) { return small_with(settings).precision.loss_scale; };
  EXPECT_EQ(scale({}).kind, LossScale::Kind::kByFormat);
  EXPECT_EQ(scale({"precision.compute=fp16"}).kind, LossScale::Kind::kByFormat);
  EXPECT_EQ(scale({"precision.compute=fp16", "precision.loss_scale=dynamic"}).kind, LossScale::Kind::kDynamic);
  for (const double fixed : {1.0, 65536.0, 4294967296.0}) {
    const TrainConfig c = small_with({"precision.compute=fp16", fmt::format("precision.loss_scale={:.0f}", fixed)});
    EXPECT_EQ(c.precision.loss_scale.kind, LossScale::Kind::kFixed);
    EXPECT_EQ(c.precision.loss_scale.fixed, fixed);
    const TrainConfig again = parse_train_config(to_json_text(to_json(c)), "again");
    EXPECT_EQ(again.precision.loss_scale.fixed, fixed);
    EXPECT_EQ(to_json_text(to_json(again)), to_json_text(to_json(c)));
  }
}

TEST(ConfigAccepts, LayoutText) {
  const LayoutDegrees expected{.data = 2, .pipeline = 4, .tensor = 4, .context = 1};
  for (const char* text : {"2DP x 4PP x 4TP",
                           "2DP\xc3\x97"
                           "4PP\xc3\x97"
                           "4TP",
                           "4tp 4pp 2dp", "4TPx2DPx4PP", "2 DP * 4 PP, 4 TP", "1CP X 2DP X 4PP X 4TP"})
    EXPECT_EQ(parse_layout(text, ""), expected) << text;
  EXPECT_EQ(parse_layout("8DP", ""), (LayoutDegrees{.data = 8}));
}

TEST(ConfigAccepts, LayoutTextInFileAndSetting) {
  std::string text = kSmall;
  text.insert(1, "\"parallel\": \"2DP x 4PP x 4TP\", ");
  const TrainConfig c = parse_train_config(text, "c.json", {"parallel.zero=zero3"});
  EXPECT_EQ(c.parallel.data, 2);
  EXPECT_EQ(c.parallel.pipeline, 4);
  EXPECT_EQ(c.parallel.tensor, 4);
  EXPECT_EQ(c.parallel.zero, ZeroPreset::kZero3);
  const TrainConfig d = parse_train_config(text, "c.json", {"parallel.overlap=false", "parallel=2TP"});
  EXPECT_EQ(d.parallel.data, 1);
  EXPECT_EQ(d.parallel.pipeline, 1);
  EXPECT_EQ(d.parallel.tensor, 2);
  EXPECT_FALSE(d.parallel.overlap);  // a layout speaks of degrees only
}

TEST(ConfigAccepts, SettingsWinAndTheLastOneWins) {
  const TrainConfig c = small_with({"run.steps=7", "run.steps=9", "optimizer.lr=1", "run.dir=2024", "run.pin=false",
                                    "optimizer.betas=[0.8, 0.9]", "model.preset=\"gpt2-124m\"", "data.valid=null",
                                    "batch={\"micro\": 2, \"global\": 6}"});
  EXPECT_EQ(c.run.steps, 9);
  EXPECT_EQ(c.optimizer.lr, 1.0);
  EXPECT_EQ(c.run.dir, "2024");
  EXPECT_FALSE(c.run.pin);
  EXPECT_EQ(c.optimizer.betas[0], 0.8);
  EXPECT_EQ(c.model.preset, "gpt2-124m");
  EXPECT_TRUE(c.data.valid.empty());
  EXPECT_EQ(c.batch.micro, 2);
  EXPECT_EQ(c.batch.global, 6);
  EXPECT_EQ(small_with({"run.dir=a=b"}).run.dir, "a=b");
}

TEST(ConfigAccepts, GradSyncAndZeroSpellings) {
  EXPECT_EQ(small_with({}).parallel.grad_sync, (GradSync{GradSync::Kind::kPreset, 0}));
  EXPECT_EQ(small_with({"parallel.grad_sync=step"}).parallel.grad_sync, (GradSync{GradSync::Kind::kStep, 0}));
  EXPECT_EQ(small_with({"parallel.grad_sync=auto"}).parallel.grad_sync, (GradSync{GradSync::Kind::kAuto, 0}));
  EXPECT_EQ(small_with({"parallel.grad_sync={\"every\": 3}"}).parallel.grad_sync, (GradSync{GradSync::Kind::kEvery, 3}));
  EXPECT_EQ(small_with({"parallel.zero=FULL_SHARD"}).parallel.zero, ZeroPreset::kZero3);
  EXPECT_EQ(small_with({"parallel.zero=SHARD_GRAD_OP"}).parallel.zero, ZeroPreset::kShardGradOp);
  EXPECT_EQ(small_with({"lr_schedule.type=inverse-sqrt"}).lr_schedule.type, LrScheduleType::kInverseSqrt);
  const ZeroPreset stages[] = {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kZero3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::string number = std::to_string(stage);
    EXPECT_EQ(small_with({"parallel.zero=" + number}).parallel.zero, stages[stage]);
    EXPECT_EQ(small_with({"parallel.zero=\"" + number + "\""}).parallel.zero, stages[stage]);
    std::string file = kSmall;
    file.insert(1, "\"parallel\": {\"zero\": " + number + "},");
    EXPECT_EQ(parse_train_config(file, "c.json").parallel.zero, stages[stage]);
  }
  const auto format = [](const std::string& name) { return small_with({"precision.compute=" + name}).precision.compute; };
  for (const char* name : {"float16", "half", "torch.float16"}) EXPECT_EQ(format(name), format("fp16")) << name;
  for (const char* name : {"bfloat16", "torch.bfloat16"}) EXPECT_EQ(format(name), format("bf16")) << name;
  EXPECT_EQ(format("float32"), format("fp32"));
  EXPECT_EQ(small_with({"parallel.param_gather=per_use"}).parallel.param_gather, ParamGather::kPerUse);
  EXPECT_EQ(small_with({"parallel.data=auto"}).parallel.data, std::nullopt);
}

TEST(ConfigAccepts, ModelsSpelledOut) {
  const std::string text = with_model(R"("model_type": "llama", "rope_scaling": {"factor": 2.0}, "dropout": 0.1)");
  const TrainConfig c = parse_train_config(text, "c.json", {"model.hidden_size=64", "model.rope_scaling.rope_type=linear",
                                                       "model.num_hidden_layers=2", "model.num_attention_heads=4",
                                                       "model.intermediate_size=96", "data.tokenizer=null"});
  EXPECT_EQ(c.model.preset, std::nullopt);
  EXPECT_EQ(c.model.dropout, 0.1);
  EXPECT_EQ(to_json_text(c.model.keys),
            R"({"model_type":"llama","rope_scaling":{"factor":2.0,"rope_type":"linear"},"hidden_size":64,)"
            R"("num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":96})");
  const std::vector<std::string> of_file{"model.preset=null", "model.hf_config=x/config.json", "data.tokenizer=null"};
  EXPECT_EQ(small_with(of_file).model.hf_config, "x/config.json");
}

TEST(ConfigAccepts, ASettingTakesThePlaceOfWhatFilesSayByAnotherKey) {
  const TrainConfig c = small_with({"run.epochs=2", "model.preset=gpt2-124m"});
  EXPECT_EQ(c.run.epochs, 2);
  EXPECT_EQ(c.model.preset, "gpt2-124m");
  EXPECT_EQ(c.replaced, std::vector<std::string>{"c.json:2: run.steps has no effect, because --set run.epochs takes its place"});
  EXPECT_NE(refusal({"run.epochs=2", "run.steps=3"}).find("run.steps = 3 is given too"), std::string::npos);
  const std::string text = replaced(with_model(R"("model_type": "llama", "hidden_size": 64)"), R"("train")",
                                    R"("split": "95,5", "train")");
  const TrainConfig spelled =
      parse_train_config(text, "c.json", {"model.sliding_window=null", "model.preset=mistral-7b", "data.valid=corpus/valid"});
  EXPECT_EQ(spelled.model.preset, "mistral-7b");
  EXPECT_EQ(spelled.replaced, (std::vector<std::string>{
                                  "c.json:3: model.model_type has no effect, nor have the model's other keys there, because --set "
                                  "model.preset takes its place",
                                  "c.json:5: data.split has no effect, because --set data.valid takes its place"}));
  EXPECT_EQ(to_json_text(spelled.model.keys), R"({"sliding_window":null})") << "what --set says stays";
  EXPECT_EQ(spelled.data.split, std::nullopt);
}

TEST(ConfigAccepts, DataSources) {
  const TrainConfig c = small_with({R"(data.train=["a", {"path": "b", "weight": 2}])"});
  ASSERT_EQ(c.data.train.size(), 2u);
  EXPECT_EQ(c.data.train[0].path, "a");
  EXPECT_EQ(c.data.train[0].weight, 1.0);
  EXPECT_EQ(c.data.train[1].weight, 2.0);
  EXPECT_EQ(small_with({"data.train=corpus/x"}).data.train.at(0).path, "corpus/x");
  // As Megatron-LM writes a blend; a path may have a number and blanks, too.
  const TrainConfig blend = small_with({"data.train=0.25 a 75e-2 b"});
  ASSERT_EQ(blend.data.train.size(), 2u);
  EXPECT_EQ(blend.data.train[1].path, "b");
  EXPECT_EQ(blend.data.train[1].weight, 0.75);
  for (const char* path : {"1 a", "2024_a 2025_b", "1 a 2", "1 a b 2", "0 a 1 b"})
    EXPECT_EQ(small_with({fmt::format("data.train={}", path)}).data.train.at(0).path, path);
  EXPECT_EQ(small_with({"loss.type=sft"}).loss.type, LossType::kCrossEntropy);
  EXPECT_EQ(small_with({"data.split=969,30,1"}).data.split, "969,30,1");
}

// Files of before, when they were names of what was to come, may have null.
TEST(ConfigAccepts, NullForKeysOfDocuments) {
  for (const char* key : {"data.reset_position_ids", "data.reset_attention_mask", "data.eod_mask_loss"})
    EXPECT_FALSE(small_with({std::string(key) + "=null"}).data.finds_documents()) << key;
}

TEST(ConfigAccepts, NeutralValuesOfReservedKeys) {
  for (const Option& option : option_table()) {
    if (!option.reserved) continue;
    for (const char* neutral : {"null", "false", "0"})
      EXPECT_EQ(refusal({std::string(option.path) + "=" + neutral}), "accepted") << option.path << " = " << neutral;
    if (!option.fallback.empty()) {
      EXPECT_EQ(refusal({std::string(option.path) + "=" + std::string(option.fallback)}), "accepted") << option.path;
    }
  }
  EXPECT_EQ(small_with({"parallel.context=0"}).parallel.context, 1);
  std::string text = kSmall;
  text.insert(1, "\"checkpoint\": null, ");
  EXPECT_EQ(refusal({}, text), "accepted");
}

TEST(ConfigAccepts, ResolvedTextIsAFixedPoint) {
  const std::string inline_model =
      with_model(R"("model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "layer_norm_epsilon": 1e-5)");
  for (const std::string& text : {std::string(kSmall), std::string(kComplete), inline_model}) {
    const TrainConfig first =
        parse_train_config(text, "c.json", {"parallel.grad_sync={\"every\":2}", "parallel.layers=null", "optimizer.lr=0.1"});
    const std::string printed = to_json_text(to_json(first), 2);
    const TrainConfig second = parse_train_config(printed, "printed");
    EXPECT_EQ(to_json_text(to_json(second), 2), printed);
    EXPECT_EQ(second.optimizer.lr, 0.1);
    OptionValues values;
    values.take_file(parse_json(text, "c.json"), "c.json");
    EXPECT_EQ(to_json(parse_train_config(config_with_origins(first, values), "with origins")), to_json(first));
  }
}

TEST(ConfigAccepts, ResolvedHasEveryKeyOfTheTable) {
  const JsonValue resolved = to_json(small_with({}));
  for (const Option& option : option_table()) {
    const JsonValue* value = &resolved;
    for (std::string_view rest = option.path; value != nullptr && !rest.empty();) {
      const std::size_t end = std::min(rest.find('.'), rest.size());
      value = value->find(rest.substr(0, end));
      rest.remove_prefix(std::min(rest.size(), end + 1));
    }
    EXPECT_NE(value, nullptr) << option.path;
  }
}

// Whatever legal value a supported key is given is what the typed configuration says afterwards: no key is dropped on the way.
TEST(ConfigAccepts, EverySupportedKeyReachesTheTypedConfiguration) {
  for (const Option& option : option_table()) {
    if (option.reserved || option.path == "$schema" || block_of(option) == kModelBlock) continue;
    std::string value;
    if (takes(option.takes, Takes::kBool)) value = option.fallback == "true" ? "false" : "true";
    else if (takes(option.takes, Takes::kInteger)) value = "2";
    else if (takes(option.takes, Takes::kNumber)) value = option.range.low < 1 ? "0.0001" : "2";
    else if (takes(option.takes, Takes::kNumbers)) value = "[0.5,0.25]";
    else if (takes(option.takes, Takes::kIntegers)) value = option.path == "log.trace_steps" ? "[2,3]" : "[4]";
    else if (takes(option.takes, Takes::kLayouts)) value = R"(["2DP x 4PP",{"data":1,"layers":null}])";
    else if (option.form == TextForm::kAxisOrder) value = "pp-dp-cp-tp";
    else if (option.form == TextForm::kSplit) value = "9,1";
    else value = option.choices.empty() ? "some/text.prom" : std::string(option.choices.back());
    std::vector<std::string> settings{std::string(option.path) + "=" + value};
    const bool is_of_losses = option.path.starts_with("loss.") || option.path == "reference";
    if (is_of_losses) settings.emplace_back("data.samples=packed");
    if (is_of_losses && option.path != "loss.type" && option.path != "loss.normalize")
      settings.insert(settings.end(), {"loss.type=dpo", "model.init_from=folder"});
    if (option.path == "run.epochs") settings.emplace_back("run.steps=null");
    if (option.path == "parallel.virtual_stages") settings.emplace_back("parallel.schedule=interleaved");
    if (option.path == "precision.loss_scale") settings.emplace_back("precision.compute=fp16");
    if (option.path == "precision.stochastic_rounding") settings.emplace_back("precision.compute=bf16");
    if (option.path.starts_with("adapter.") && option.path != "adapter.type") settings.emplace_back("adapter.type=lora");
    if (option.path == "adapter.init_from") settings.emplace_back("model.init_from=folder");
    if (option.path == "cuda.nccl_any_order") settings.emplace_back("cuda.nccl_max_ctas=4");
    if (option.path.starts_with("eval.sample")) settings.emplace_back("eval.every=1");
    if (option.path == "lr_schedule.type") settings.emplace_back("lr_schedule.wsd_decay_steps=1");
    const JsonValue resolved = to_json(small_with(settings));
    const JsonValue* block = block_of(option).empty() ? &resolved : resolved.find(block_of(option));
    const std::string found = to_json_text(*block->find(key_of(option)));
    EXPECT_NE(found.find(value), std::string::npos) << option.path << " = " << found << ", given " << value;
  }
}

TEST(ConfigAccepts, TheResolvedTextTellsConfigurationsApart) {
  const auto text = [](const TrainConfig& config) { return to_json_text(to_json(config)); };
  EXPECT_EQ(text(small_with({})), text(small_with({"run.seed=1234"})));
  EXPECT_NE(text(small_with({})), text(small_with({"run.seed=1235"})));
}

TEST(ConfigAccepts, OneConversationInThePlaceOfAListOfPrompts) {
  const std::string one = R"([{"role":"user","content":"Hi"}])";
  for (const std::string& value : {one, "[" + one + "]"}) {
    const TrainConfig config = small_with({"eval.every=1", "eval.samples=" + value});
    ASSERT_EQ(config.eval.samples.size(), 1u) << value;
    const TrainConfig again = parse_train_config(to_json_text(to_json(config)), "config.resolved.json");
    EXPECT_EQ(again.eval.samples[0], parse_json(one, "one")) << value;
  }
}

TEST(ConfigAccepts, AWindowBesideAPreset) {
  const TrainConfig config = small_with({"model.preset=mistral-7b", "model.sliding_window=null"});
  EXPECT_EQ(config.model.preset, "mistral-7b");
  EXPECT_TRUE(config.model.keys.find("sliding_window")->is_null());
  const TrainConfig again = parse_train_config(to_json_text(to_json(config)), "config.resolved.json");
  EXPECT_EQ(to_json_text(to_json(again)), to_json_text(to_json(config)));
}

// Not named, the tokenizer is GPT-2's where the vocabulary is, and unknown elsewhere: a Llama's ids are not read as GPT-2's.
TEST(ConfigAccepts, TheTokenizerOfAVocabulary) {
  const auto of = [](const char* type, int vocabulary, const std::vector<std::string>& settings = {}) {
    const char* const sizes = std::string(type) == "gpt2" ? R"("n_embd": 8, "n_layer": 1, "n_head": 2)"
                                                          : R"("hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                                                               "num_attention_heads": 2)";
    const std::string text = with_model(fmt::format(R"("model_type": "{}", "vocab_size": {}, {})", type, vocabulary, sizes));
    return parse_train_config(text, "c.json", settings).data;
  };
  using Name = std::optional<std::string>;
  for (const char* type : {"gpt2", "llama"}) {
    EXPECT_EQ(of(type, 50256).tokenizer, Name()) << type;
    EXPECT_EQ(of(type, 50257).tokenizer, Name("gpt2")) << type;
    EXPECT_EQ(of(type, 128256).tokenizer, Name()) << type;
  }
  EXPECT_EQ(of("gpt2", 50304).tokenizer, Name("gpt2")) << "filled up to a multiple of 128";
  EXPECT_EQ(of("gpt2", 50305).tokenizer, Name());
  EXPECT_EQ(of("llama", 50258).tokenizer, Name());
  EXPECT_EQ(of("llama", 50304).tokenizer, Name()) << "GPT-NeoX's has as many";
  // A named value stays.
  EXPECT_EQ(of("llama", 32000, {"data.tokenizer=gpt2"}).tokenizer, Name("gpt2"));
  EXPECT_EQ(of("gpt2", 50257, {"data.tokenizer=null"}).tokenizer, Name());
  EXPECT_EQ(of("gpt2", 50257, {"data.tokenizer=my/folder"}).tokenizer, Name("my/folder"));
  EXPECT_EQ(of("gpt2", 50257, {"data.tokenizer=auto"}).tokenizer, Name("gpt2"));
  EXPECT_TRUE(of("llama", 32000).tokenizer_was_auto);
  EXPECT_FALSE(of("llama", 32000, {"data.tokenizer=gpt2"}).tokenizer_was_auto);
  // The resolved configuration says what it came to.
  EXPECT_EQ(*to_json(small_with({})).find("data")->find("tokenizer"), JsonValue("gpt2"));
  EXPECT_TRUE(to_json(small_with({"model.preset=llama3-8b"})).find("data")->find("tokenizer")->is_null());
  // Texts need a tokenizer, and where there is none it is said before anything runs.
}

TEST(ConfigAccepts, InitialWeights) {
  EXPECT_EQ(small_with({}).model.init_from, std::nullopt);
  EXPECT_EQ(small_with({"model.init_from=runs/a/ckpt"}).model.init_from, "runs/a/ckpt");
}

TEST(ConfigAccepts, CheckpointEveryZeroNeutralisesItsBlock) {
  EXPECT_EQ(small_with({"checkpoint.resume=null"}).checkpoint.resume, ResumeFrom{});
  EXPECT_EQ(small_with({"checkpoint.resume=auto"}).checkpoint.resume, ResumeFrom{});
  EXPECT_EQ(small_with({"checkpoint.resume=never"}).checkpoint.resume.kind, ResumeFrom::Kind::kNever);
  EXPECT_EQ(small_with({"checkpoint.resume=runs/a/ckpt"}).checkpoint.resume, (ResumeFrom{ResumeFrom::Kind::kPath, "runs/a/ckpt"}));
  const SaveInterval never{}, at_end{.steps = 0, .at_end = true};
  for (const char* setting : {"checkpoint=null", "checkpoint=0", "checkpoint.every=0", "checkpoint.every=null"})
    EXPECT_EQ(small_with({setting}).checkpoint.every, never) << setting;
  EXPECT_EQ(small_with({}).checkpoint.every, at_end);
  EXPECT_FALSE(small_with({}).checkpoint.every_was_given);
  EXPECT_EQ(small_with({"checkpoint.every=end"}).checkpoint.every, at_end);
  EXPECT_TRUE(small_with({"checkpoint.every=end"}).checkpoint.every_was_given);
  EXPECT_EQ(small_with({"checkpoint.every=7"}).checkpoint.every, (SaveInterval{.steps = 7, .at_end = true}));
}

TEST(ConfigAccepts, NullLeavesOutTheAdaptersOfAFile) {
  std::string text = kSmall;
  text.replace(text.find_last_of('}'), 1, R"(, "adapter": {"type": "lora", "r": 4, "alpha": 8, "target_modules": ["q_proj"]}})");
  EXPECT_TRUE(parse_train_config(text, "c.json").adapter.type);
  for (const char* setting : {"adapter=null", "adapter.type=null"}) {
    EXPECT_FALSE(parse_train_config(text, "c.json", {setting}).adapter.type) << setting;
    EXPECT_FALSE(parse_train_config(text, "c.json", {"adapter.type=dora", setting}).adapter.type) << "the later one wins";
    EXPECT_THROW(parse_train_config(text, "c.json", {"adapter.r=4", setting}), ConfigError) << setting;
  }
  EXPECT_FALSE(parse_train_config(text, "c.json", {"adapter.init_from=folder", "adapter=null"}).adapter.init_from);
  const std::string begins = R"(adapter={"init_from": "no"})";  // the folder says the rest, and is read before the file's keys
  expect_parts(error_of<DataError>([&] { parse_train_config(text, "c.json", {begins}); }), {"no/adapter_config.json is not there"});
  EXPECT_EQ(error_of<ConfigError>([&] { parse_train_config(text, "c.json", {"adapter={}"}); }),
            "--set: adapter = {}: has no key, so that it would change nothing; give its keys, or null to train all weights");
  EXPECT_FALSE(parse_train_config(R"({"adapter": null, )" + std::string(kSmall).substr(1), "c.json").adapter.type);
}

TEST(ConfigAccepts, ASettingReplacesAnIllegalValueOfTheFile) {
  std::string text = kSmall;
  text.replace(text.find_last_of('}'), 1, R"(, "checkpoint": {"every": 100}, "parallel": {"tensor": 0}})");
  EXPECT_THROW(parse_train_config(text, "c.json"), ConfigError);
  EXPECT_THROW(parse_train_config(text, "c.json", {"checkpoint.every=0"}), ConfigError);
  EXPECT_EQ(parse_train_config(text, "c.json", {"checkpoint.every=0", "parallel.tensor=2"}).parallel.tensor, 2);
}

TEST(ConfigAccepts, AWarmUpIsStepsOrAShareOfThem) {
  const TrainConfig config = small_with({"lr_schedule.warmup_steps=0.25", "run.steps=9"});
  EXPECT_EQ(config.lr_schedule.warmup.within(decay_length(config)), 3);
  EXPECT_EQ(*to_json(config).find("lr_schedule")->find("warmup_steps"), JsonValue(0.25));
  const TrainConfig tail = small_with({"lr_schedule.type=wsd", "lr_schedule.wsd_decay_steps=0.25", "run.steps=9"});
  EXPECT_EQ(tail.lr_schedule.wsd_decay_steps->within(decay_length(tail)), 3);
  EXPECT_EQ(*to_json(tail).find("lr_schedule")->find("wsd_decay_steps"), JsonValue(0.25));
  const TrainConfig longer = small_with({"lr_schedule.warmup_steps=0.25", "run.steps=9", "lr_schedule.decay_steps=40"});
  EXPECT_EQ(longer.lr_schedule.warmup.within(decay_length(longer)), 10);
  EXPECT_EQ(small_with({"lr_schedule.warmup_steps=2"}).lr_schedule.warmup.within(5), 2);
  EXPECT_EQ(*to_json(small_with({})).find("lr_schedule")->find("warmup_steps"), JsonValue(0));
}

TEST(ConfigAccepts, ValuesOfAnImportReplaceTheFilesAndDefaultsGiveWay) {
  OptionValues values;
  values.take_file(parse_json(kSmall, "c.json"), "c.json");
  values.take_import("batch.global", 16, "a.yaml:3 total: 16", false);
  values.take_import("batch.sequence", 128, "its default", true);
  values.take_import("optimizer.grad_clip", 0.5, "its default", true);
  values.take_import("run.epochs", 3.0, "its default", true);
  values.take_import("model.vocab_size", 50257, "its default", true);
  EXPECT_EQ(values.at("batch.global").value, JsonValue(16));
  EXPECT_EQ(values.at("batch.global").origin, "a.yaml:3 total: 16 in the place of c.json:4");
  EXPECT_EQ(values.at("batch.sequence").value, JsonValue(64));
  EXPECT_EQ(values.at("optimizer.grad_clip").origin, "its default");
  EXPECT_TRUE(values.at("run.epochs").value.is_null()) << "the file says run.steps";
  values.take_import("run.epochs", 1.0, "run.sh:1 --epochs 1", false);
  EXPECT_TRUE(values.at("run.steps").value.is_null());
  EXPECT_EQ(values.at("run.epochs").origin, "run.sh:1 --epochs 1 in the place of c.json:2");
  EXPECT_TRUE(values.model_keys().is_null()) << "the file names a model";
  values.take_import("model.model_type", "llama", "run.sh:2 --swiglu", false);
  values.take_import("model.hidden_size", 64, "run.sh:3 --hidden-size 64", false);
  EXPECT_TRUE(values.at("model.preset").value.is_null());
  EXPECT_EQ(*values.model_keys().find("hidden_size"), JsonValue(64));
  values.take_import("parallel.context", 2, "a.yaml:4 cp_size: 2", false);
  const std::string error = error_of<ConfigError>([&] { values.require_complete(); });
  EXPECT_TRUE(error.starts_with("a.yaml:4 cp_size: 2: parallel.context = 2: not built yet")) << error;
}

TEST(ConfigAccepts, OriginsNameFileLineAndSetting) {
  OptionValues values;
  values.take_file(parse_json(kSmall, "c.json"), "c.json");
  values.take_setting("batch.micro=2");
  EXPECT_EQ(values.at("run.steps").origin, "c.json:2");
  EXPECT_EQ(values.at("data.train").origin, "c.json:5");
  EXPECT_EQ(values.at("batch.micro").origin, "--set");
  EXPECT_EQ(values.at("run.seed").origin, "default");
  const std::string printed = config_with_origins(make_train_config(values), values);
  EXPECT_NE(printed.find("\"micro\": 2,  // --set"), std::string::npos) << printed;
  EXPECT_NE(printed.find("\"steps\": 5,  // c.json:2"), std::string::npos) << printed;
  // The model's keys, too.
  OptionValues spelled_out;
  const std::string text =
      with_model("\"model_type\": \"llama\", \"vocab_size\": 512,\n"
                 "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 64");
  spelled_out.take_file(parse_json(text, "c.json"), "c.json");
  spelled_out.take_setting("model.num_hidden_layers=4");
  const std::string model = config_with_origins(make_train_config(spelled_out), spelled_out);
  for (const char* line :
       {"\"vocab_size\": 512,  // c.json:3", "\"hidden_size\": 64,  // c.json:4", "\"num_hidden_layers\": 4,  // --set"})
    EXPECT_NE(model.find(line), std::string::npos) << model;
}

}  // namespace
}  // namespace trident
