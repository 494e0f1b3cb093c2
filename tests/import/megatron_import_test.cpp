// These tests hold what Megatron-LM's flags say together.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "core/check.h"
#include "train/config/option_table.h"
#include "import/foreign/foreign_key.h"
#include "import/facts.h"
#include "import/import.h"

namespace trident {
namespace {

// Facts of flags, each with its name as its origin.
Facts flags(std::initializer_list<std::pair<const char*, JsonValue>> given) {
  Facts facts;
  for (const auto& [name, value] : given) facts.take(name, {value, std::string("run.sh:1 ") + name});
  return facts;
}

Facts with_model(std::initializer_list<std::pair<const char*, JsonValue>> given) {
  Facts facts = flags(given);
  for (const auto& [name, value] :
       {std::pair{"model.num_hidden_layers", 24}, {"model.hidden_size", 1024}, {"model.num_attention_heads", 16}})
    facts.take(name, {value, std::string("run.sh:1 ") + name});
  return facts;
}

Facts llama(std::initializer_list<std::pair<const char*, JsonValue>> given) {
  Facts facts = with_model(given);
  facts.take("@position_embedding", {"rope", "run.sh:2 --position-embedding-type rope"});
  facts.take("@normalization", {"RMSNorm", "run.sh:2 --normalization RMSNorm"});
  facts.take("@swiglu", {true, "run.sh:2 --swiglu"});
  return facts;
}

TEST(ImportedNumbers, BarsStandBetweenDigitsAlone) {
  EXPECT_EQ(number_in("+1_000_0"), JsonValue(10'000));
  EXPECT_EQ(number_in("1_0.2_5e1_0"), JsonValue(10.25e10));
  for (const char* const text : {"_1", "1_", "1__0", "1_.5", "_"}) EXPECT_EQ(number_in(text), std::nullopt) << text;
  std::string zeros = "0";
  for (int i = 0; i < 500'000; ++i) zeros += "_0";
  EXPECT_EQ(number_in(zeros), JsonValue(0));
}

Facts derived(Facts facts) {
  derive_megatron(facts);
  return facts;
}

JsonValue value(const Facts& facts, const char* name) {
  const Fact* const fact = facts.find(name);
  return fact == nullptr ? JsonValue("nobody says so") : fact->value;
}

std::string refusal(Facts facts) {
  try {
    derive_megatron(facts);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

bool is_remarked(const Facts& facts, std::string_view part) {
  for (const auto& [origin, sentence] : facts.remarks())
    if (sentence.find(part) != sentence.npos) return true;
  return false;
}

TEST(MegatronImport, PlainFlagsMakeGpt2UnderItsOwnNames) {
  const Facts facts = derived(with_model({{"model.max_position_embeddings", 1024}, {"model.rms_norm_eps", 1e-5}}));
  EXPECT_EQ(value(facts, "model.model_type"), JsonValue("gpt2"));
  EXPECT_EQ(value(facts, "model.n_layer"), JsonValue(24));
  EXPECT_EQ(value(facts, "model.n_embd"), JsonValue(1024));
  EXPECT_EQ(value(facts, "model.n_head"), JsonValue(16));
  EXPECT_EQ(value(facts, "model.n_positions"), JsonValue(1024));
  EXPECT_EQ(value(facts, "model.layer_norm_epsilon"), JsonValue(1e-5));
  EXPECT_EQ(value(facts, "model.tie_word_embeddings"), JsonValue(true));
  EXPECT_EQ(value(facts, "model.vocab_size"), JsonValue(50257)) << "pretrain_gpt.py takes GPT-2's tokenizer";
  EXPECT_EQ(value(facts, "data.tokenizer"), JsonValue("gpt2"));
  EXPECT_EQ(facts.find("model.num_hidden_layers"), nullptr);
  EXPECT_TRUE(facts.is_given("model.model_type")) << "a model that a base has must give way";
  EXPECT_EQ(value(facts, "model.attn_pdrop"), JsonValue(0)) << "a row of its own, where Megatron-LM's default is 0.1";
}

TEST(MegatronImport, RotaryGatedFlagsMakeTheFamilyThatHasThem) {
  const auto type = [](Facts facts) { return value(derived(std::move(facts)), "model.model_type"); };
  EXPECT_EQ(type(llama({{"@bias_linear", false}})), JsonValue("llama"));
  EXPECT_EQ(type(llama({{"@bias_linear", false}, {"@qkv_bias", true}})), JsonValue("qwen2"));
  EXPECT_EQ(type(llama({{"@bias_linear", false}, {"@qk_layernorm", true}})), JsonValue("qwen3"));
  EXPECT_EQ(type(llama({{"@bias_linear", false}, {"@window", "(4095, 0)"}})), JsonValue("mistral"));
  const Facts biased = derived(llama({}));
  EXPECT_EQ(value(biased, "model.model_type"), JsonValue("llama"));
  EXPECT_EQ(value(biased, "model.attention_bias"), JsonValue(true));
  EXPECT_EQ(value(biased, "model.mlp_bias"), JsonValue(true));
}

TEST(MegatronImport, LlamasKeysAreTheDefaultsOfMegatronWhereNoFlagSaysThem) {
  const Facts facts = derived(llama({{"@bias_linear", false}}));
  EXPECT_EQ(value(facts, "model.intermediate_size"), JsonValue(2688)) << "8/3 of the width, a multiple of 64";
  EXPECT_EQ(value(facts, "model.num_key_value_heads"), JsonValue(16));
  EXPECT_EQ(value(facts, "model.head_dim"), JsonValue(64));
  EXPECT_EQ(value(derived(llama({{"@grouped_queries", true}})), "model.num_key_value_heads"), JsonValue(1));
  const Facts grouped = derived(llama({{"@grouped_queries", true}, {"model.num_key_value_heads", 4}}));
  EXPECT_EQ(grouped.find("model.num_key_value_heads")->origin, "run.sh:1 model.num_key_value_heads, run.sh:1 @grouped_queries");
  const Facts scaled = derived(llama({{"@rope_scaling", true}, {"@rope_llama3_factor", 32}}));
  EXPECT_EQ(value(scaled, "model.rope_scaling").find("rope_type")->as_string(), "llama3");
  EXPECT_EQ(value(scaled, "model.rope_scaling").find("factor")->as_number(), 32);
  EXPECT_EQ(value(derived(llama({{"@bias_linear", false}, {"@window", "127,0"}})), "model.sliding_window"), JsonValue(128));
  for (const char* const window : {"4095.5,0", "-4,0", "7,1"})
    EXPECT_THROW(derived(llama({{"@bias_linear", false}, {"@window", window}})), ConfigError) << window;
  const Facts qwen = derived(llama({{"@bias_linear", false}, {"@qkv_bias", true}, {"@window", "127,0"}}));
  EXPECT_EQ(value(qwen, "model.use_sliding_window"), JsonValue(true));
  EXPECT_EQ(value(qwen, "model.max_window_layers"), JsonValue(0));
}

TEST(MegatronImport, LogsLieBesideTheCheckpointsUnlessAnotherFolderIsGiven) {
  EXPECT_EQ(value(derived(with_model({{"checkpoint.dir", "out"}})), "run.dir"), JsonValue("out"));
  EXPECT_FALSE(derived(with_model({{"checkpoint.dir", "out"}})).is_given("run.dir"));
  EXPECT_EQ(value(derived(with_model({{"checkpoint.dir", "out"}, {"run.dir", "logs"}})), "run.dir"), JsonValue("logs"));
}

TEST(MegatronImport, AMixThatNoModelHasIsRefusedWithItsFlags) {
  const std::string why = refusal(with_model({{"@position_embedding", "rope"}, {"@normalization", "LayerNorm"}}));
  EXPECT_NE(why.find("run.sh:1 @position_embedding, run.sh:1 @normalization: no model here has --position-embedding-type rope, "
                     "--normalization LayerNorm, GELU, all biases together"),
            why.npos)
      << why;
  EXPECT_NE(refusal(llama({{"@qk_layernorm", true}})).find("--qk-layernorm"), std::string::npos);
  EXPECT_NE(refusal(llama({{"@bias_linear", false}, {"@qkv_bias", true}, {"@qk_layernorm", true}})).find("--add-qkv-bias"),
            std::string::npos);
  EXPECT_NE(refusal(with_model({{"@grouped_queries", true}})).find("--group-query-attention"), std::string::npos);
  EXPECT_NE(refusal(with_model({{"model.rope_theta", 1e6}})).find("has no effect without --position-embedding-type rope"),
            std::string::npos);
  EXPECT_NE(refusal(llama({{"model.num_key_value_heads", 4}})).find("without --group-query-attention"), std::string::npos);
  EXPECT_NE(refusal(flags({{"model.hidden_size", 64}})).find("a model needs --num-layers, too"), std::string::npos);
  EXPECT_NE(refusal(with_model({{"model.head_dim", 128}})).find("hidden / heads"), std::string::npos);
}

TEST(MegatronImport, APartOfAScriptLeavesTheModelToTheBase) {
  Facts facts = flags({{"parallel.tensor", 2}});
  facts.set("model.dropout", {0.1, "Megatron-LM's default", Weight::kDefault});
  derive_megatron(facts);
  for (const auto& [name, fact] : facts.all()) EXPECT_FALSE(name.starts_with("model.")) << name;
}

TEST(MegatronImport, AnUnknownVocabularyIsSaid) {
  const Facts facts = derived(with_model({{"@tokenizer_type", "HuggingFaceTokenizer"}, {"data.tokenizer", "hf/llama3"}}));
  EXPECT_EQ(facts.find("model.vocab_size"), nullptr);
  EXPECT_TRUE(is_remarked(facts, "model.vocab_size is not said"));
  EXPECT_EQ(value(derived(with_model({{"@tokenizer_type", "Llama2Tokenizer"}})), "model.vocab_size"), JsonValue(32000));
  EXPECT_EQ(
      value(derived(with_model({{"@tokenizer_type", "HuggingFaceTokenizer"}, {"@padded_vocabulary", 151936}})), "model.vocab_size"),
      JsonValue(151936));
  EXPECT_EQ(value(derived(with_model({{"model.vocab_size", 128}})), "data.tokenizer"), JsonValue("nobody says so"));
}

TEST(MegatronImport, ShardingFlagsBecomeOnePreset) {
  const auto zero = [](std::initializer_list<std::pair<const char*, JsonValue>> given) {
    return value(derived(flags(given)), "parallel.zero");
  };
  EXPECT_EQ(zero({}), JsonValue("ddp"));
  EXPECT_EQ(zero({{"@distributed_optimizer", true}}), JsonValue("zero1"));
  EXPECT_EQ(zero({{"@distributed_optimizer", true}, {"@megatron_fsdp", true}}), JsonValue("zero3"));
  EXPECT_EQ(zero({{"@megatron_fsdp", true}, {"parallel.zero", "zero2"}}), JsonValue("zero2"));
  EXPECT_EQ(zero({{"@torch_fsdp", true}}), JsonValue("zero3"));
}

TEST(MegatronImport, StagesAreCountedFromLayers) {
  const Facts chunks = derived(with_model({{"parallel.pipeline", 4}, {"@layers_per_virtual_stage", 3}}));
  EXPECT_EQ(value(chunks, "parallel.virtual_stages"), JsonValue(2));
  EXPECT_EQ(value(chunks, "parallel.schedule"), JsonValue("interleaved"));
  EXPECT_NE(refusal(with_model({{"parallel.pipeline", 4}, {"@layers_per_virtual_stage", 5}})).find("whole number: 24 / 20"),
            std::string::npos);
  const Facts uneven = derived(with_model({{"parallel.pipeline", 4}, {"@first_stage_layers", 5}, {"@last_stage_layers", 3}}));
  EXPECT_EQ(value(uneven, "parallel.layers"), JsonValue(JsonValue::Array{5, 8, 8, 3}));
  EXPECT_NE(refusal(with_model({{"parallel.pipeline", 4}, {"@first_stage_layers", 5}})).find("parallel.layers"), std::string::npos);
}

TEST(MegatronImport, AWarmUpsFractionIsOfTheDecay) {
  EXPECT_EQ(value(derived(flags({{"@warmup_fraction", 0.001}, {"lr_schedule.decay_steps", 430000}, {"run.steps", 500000}})),
                  "lr_schedule.warmup_steps"),
            JsonValue(430));
  EXPECT_EQ(value(derived(flags({{"@warmup_fraction", 0.01}, {"run.steps", 150}})), "lr_schedule.warmup_steps"), JsonValue(2));
  EXPECT_EQ(value(derived(flags({{"@warmup_fraction", 0.1}, {"@train_samples", 1000}})), "@warmup_samples"), JsonValue(100));
  EXPECT_EQ(value(derived(flags({{"@wsd_decay_samples", 100}, {"batch.global", 8}})), "lr_schedule.wsd_decay_steps"),
            JsonValue(13));
  EXPECT_TRUE(is_remarked(derived(flags({{"@wsd_decay_samples", 100}})), "over batch.global, which no input says"));
}

TEST(MegatronImport, DataPathsBecomeSourcesAndTheSplitMegatronsOwn) {
  const Facts one = derived(flags({{"data.train", "corpus/web"}}));
  EXPECT_EQ(value(one, "data.train"), JsonValue("corpus/web"));
  EXPECT_EQ(value(one, "data.split"), JsonValue("969,30,1"));
  EXPECT_TRUE(one.find("data.split")->is_default());
  const JsonValue blend = value(derived(flags({{"data.train", JsonValue::Array{"0.7", "a", "0.3", "b"}}})), "data.train");
  EXPECT_EQ(to_json_text(blend), R"([{"path":"a","weight":0.7},{"path":"b","weight":0.3}])");
  EXPECT_EQ(to_json_text(value(derived(flags({{"data.train", "a b"}, {"data.split", "'99, 1,0'"}})), "data.split")), "\"99,1,0\"");
  EXPECT_NE(refusal(flags({{"data.train", "0.7 a b"}})).find("a weight stands before each prefix"), std::string::npos);
  EXPECT_EQ(value(derived(flags({{"@train_data_path", "a"}, {"data.valid", "b"}})), "data.split"), JsonValue("nobody says so"));
  EXPECT_EQ(value(one, "eval.every"), JsonValue(1000));
  const auto every = [](const JsonValue& train, const char* split, int given) {
    return value(derived(flags({{"data.train", train}, {"data.split", split}, {"eval.every", given}})), "eval.every");
  };
  for (const char* const split : {"100,0,0", "1.0,0.0,0.0"})
    EXPECT_EQ(every("a", split, 10), JsonValue(0)) << "nothing to evaluate on";
  EXPECT_EQ(value(derived(flags({{"data.valid", "b"}, {"data.split", "1,0,0"}, {"eval.every", 10}})), "eval.every"), JsonValue(10));
  EXPECT_EQ(every("a", "$SPLIT", 10), JsonValue(10));
  EXPECT_EQ(every(JsonValue::Array{"0.2", "$<A FILE>"}, "9,1", 10), JsonValue(10)) << "a placeholder is no list of weights";
}

TEST(MegatronImport, ALoadFromTheFolderThatIsSavedToGoesOn) {
  const auto resume = [](std::initializer_list<std::pair<const char*, JsonValue>> given) {
    return value(derived(flags(given)), "checkpoint.resume");
  };
  EXPECT_EQ(resume({{"checkpoint.dir", "ckpt"}, {"checkpoint.resume", "ckpt"}}), JsonValue("auto"));
  EXPECT_EQ(resume({{"checkpoint.dir", "ckpt"}, {"checkpoint.resume", "other"}}), JsonValue("other"));
  const Facts tuned = derived(flags({{"checkpoint.resume", "base"}, {"@finetune", true}}));
  EXPECT_EQ(value(tuned, "model.init_from"), JsonValue("base"));
  EXPECT_EQ(value(tuned, "checkpoint.resume"), JsonValue("nobody says so"));
}

TEST(MegatronImport, HeadsThatDoNotDivideTheHiddenSizeAreNoFault) {
  const auto with_heads = [](int heads) {
    return flags({{"model.num_hidden_layers", 4}, {"model.hidden_size", 64}, {"model.num_attention_heads", heads}});
  };
  EXPECT_EQ(refusal(with_heads(0)), "run.sh:1 model.num_attention_heads: must be an integer from 1; correct it");
  for (int heads = 1; heads <= 64; ++heads) EXPECT_EQ(refusal(with_heads(heads)), "none") << heads;
}

TEST(MegatronImport, DefaultsThatDifferAreFilledIn) {
  const Facts facts = derived(flags({{"batch.micro", 4}}));
  EXPECT_EQ(value(facts, "precision.compute"), JsonValue("fp32"));
  EXPECT_EQ(value(facts, "@accumulation"), JsonValue(1)) << "without --global-batch-size a step is one micro-batch of each rank";
  EXPECT_EQ(value(derived(flags({{"@profile", true}})), "log.trace_steps"), JsonValue(JsonValue::Array{10, 12}));
  EXPECT_EQ(value(derived(flags({{"@fp8", true}, {"@fp8_recipe", "mxfp8"}})), "precision.fp8"), JsonValue("mxfp8"));
}

TEST(MegatronTable, FlagsHaveTheVerdictOfTheirValue) {
  const auto row = [](std::string_view name, std::string_view value = "1") -> ForeignKey {
    const ForeignKey* const found = find_foreign_key(ForeignSystem::kMegatron, name, value);
    return found == nullptr ? ForeignKey{"unknown", Verdict::kRefused} : *found;
  };
  EXPECT_EQ(row("--seq-length").to, "batch.sequence");
  EXPECT_EQ(row("--attention-dropout", "0.1").verdict, Verdict::kRefused);
  EXPECT_EQ(row("--attention-dropout", "0.0").verdict, Verdict::kAlways);
  EXPECT_EQ(row("--context-parallel-size", "1").verdict, Verdict::kAlways);
  EXPECT_EQ(row("--context-parallel-size", "2").verdict, Verdict::kNotBuilt);
  EXPECT_EQ(row("--moe-grouped-gemm", "true").verdict, Verdict::kAlways) << "of dense models, too";
  EXPECT_EQ(row("--num-experts", "8").verdict, Verdict::kRefused);
  EXPECT_EQ(row("--optimizer", "adam").value, "\"adamw\"");
  EXPECT_EQ(row("--data-parallel-sharding-strategy", "optim_grads").value, "\"zero2\"");
  EXPECT_EQ(row("--rampup-batch-size", "16 16 5859375").verdict, Verdict::kDiffers);
  for (const char* old : {"--checkpoint-activations", "--activations-checkpoint-method"})
    EXPECT_EQ(row(old, "uniform").value, "\"full\"") << old;
  EXPECT_EQ(row("--activations-checkpoint-num-layers").verdict, Verdict::kDiffers);
  EXPECT_EQ(row("--eval-iters", "0").to, "eval.every@no_evaluation");
  EXPECT_EQ(value(derived(flags({{"eval.every", 100}, {"@no_evaluation", true}})), "eval.every"), JsonValue(0));
  EXPECT_EQ(row("--seq-lenght").names, "unknown");
}

// The scripts of 345M and 175B ask for nothing that is reserved.
TEST(MegatronImport, ScriptsAskForNothingReservedButFp8) {
  for (const std::string name : {"megatron_345m", "megatron_175b", "megatron_llama3_8b"})
    for (const ImportedKey& key : import_files({TRIDENT_SOURCE_DIR "/tests/import/files/" + name + ".sh"}).keys)
      EXPECT_EQ(key.verdict == Verdict::kNotBuilt, key.leaf.key == "--fp8-format") << name << " " << key.leaf.key;
}

}  // namespace
}  // namespace trident
