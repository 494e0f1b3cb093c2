// Every way in which a configuration is refused: the message names where, key, value and remedy.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/check.h"
#include "model/config/model_config.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

const std::string kLlama =
    R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2)";
const std::string kGpt2 = R"("model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4)";

std::string llama(const std::string& more) { return R"({"model_type": "llama", )" + kLlama + ", " + more + "}"; }
std::string family(const std::string& type, const std::string& more) {
  return R"({"model_type": ")" + type + "\", " + kLlama + ", " + more + "}";
}
std::string gpt2(const std::string& more) { return "{" + kGpt2 + ", " + more + "}"; }

// The configuration is refused, in one line that contains each of `parts`.
void expect_refused(const std::string& json, const std::vector<std::string>& parts) {
  const std::string message = error_of<ConfigError>([&] { model_config_from_hf_json(json, "model"); });
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_EQ(message.rfind("model", 0), 0u) << message;
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
}

TEST(HfConfigRefuses, TextThatIsNoObject) {
  expect_refused("[1]", {"must be an object"});
  expect_refused("{", {});
}

TEST(HfConfigRefuses, ModelTypesThatAreNotSupported) {
  expect_refused("{}", {"model.model_type", "(missing)", "gpt2, llama"});
  expect_refused(R"({"model_type": "bert"})", {"model.model_type = \"bert\"", "must be one of"});
  expect_refused(R"({"model_type": "mixtral"})", {"\"mixtral\"", "mixture-of-experts"});
  expect_refused(R"({"model_type": 3})", {"must be a string, not an integer"});
  expect_refused(family("qwen2", R"("architectures": ["LlamaForCausalLM"])"), {"architectures", "qwen2"});
  expect_refused(family("qwen2", R"("architectures": ["Qwen2MoeForCausalLM"])"), {"architectures"});
}

TEST(HfConfigRefuses, UnknownKeysWithOneThatTheyMayBeMisspellingsOf) {
  expect_refused(llama(R"("rope_tehta": 1e6)"), {"model.rope_tehta = 1000000.0", "unknown key", "did you mean \"rope_theta\"?"});
  expect_refused(gpt2(R"("n_layers": 2)"), {"did you mean \"n_layer\"?"});
  expect_refused(llama(R"("rope_scaling": {"rope_type": "linear", "facto": 2.0})"), {"model.rope_scaling.facto", "\"factor\""});
  expect_refused(llama(R"("tie_word_embedings": false)"), {"tie_word_embedings = false", "\"tie_word_embeddings\""});
}

// Neither is a key proposed that is another word, nor one that would be passed over.
TEST(HfConfigRefuses, UnknownKeysThatAreNearNothingWithoutAProposal) {
  for (const std::string key : {"ep_size", "attention_multiplier", "num_heads", "use_alibi", "freeze", "max_windows", "top_kk"}) {
    EXPECT_EQ(error_of<ConfigError>([&] { model_config_from_hf_json(llama("\"" + key + "\": 3"), "model"); }),
              "model." + key + " = 3: unknown key, which may change what the model computes; remove it if it does not");
  }
}

TEST(HfConfigRefuses, AllMistakesAtOnce) {
  EXPECT_EQ(error_of<ConfigError>([] {
              model_config_from_hf_json(R"({"model_type": "llama", "hidden_size": 64, "intermediat_size": 128,
                                            "num_hidden_layers": 2, "num_attention_heads": 4, "foo": 1})", "model");
            }),
            "model.intermediat_size = 128: unknown key, which may change what the model computes; remove it if it does not; did "
            "you mean \"intermediate_size\"?; also model.foo = 1: unknown key, which may change what the model computes; remove it "
            "if it does not; also model.intermediate_size: is missing; give the model's size, it has no default");
  expect_refused(R"({"model_type": "llama", "num_hidden_layers": "two"})",
                 {"model.hidden_size: is missing", "; also model.num_hidden_layers = \"two\": must be an integer"});
}

TEST(HfConfigRefuses, SizesThatAreMissingOrHaveTheWrongType) {
  expect_refused(R"({"model_type": "llama"})", {"model.hidden_size: is missing"});
  expect_refused(R"({"model_type": "gpt2"})", {"model.n_embd: is missing"});
  expect_refused(llama(R"("vocab_size": "big")"), {"model.vocab_size = \"big\"", "must be an integer, not a string"});
  expect_refused(llama(R"("vocab_size": 100.0)"), {"must be an integer"});
  expect_refused(llama(R"("rms_norm_eps": "small")"), {"must be a number"});
  expect_refused(llama(R"("tie_word_embeddings": 1)"), {"must be true or false"});
  expect_refused(gpt2(R"("hidden_size": 32)"), {"contradicts", "hidden_size = 32"});
}

TEST(HfConfigRefuses, SizesThatDoNotFit) {
  expect_refused(llama(R"("vocab_size": 0)"), {"vocab_size = 0"});
  expect_refused(llama(R"("vocab_size": 4294967296)"), {"vocab_size = 4294967296", "2147483647"});
  expect_refused(R"({"model_type": "gpt2", "n_embd": 4611686018427387904, "n_layer": 2, "n_head": 4})",
                 {"model.n_embd", "2147483647"});
  expect_refused(R"({"model_type": "gpt2", "n_embd": 2097152, "n_layer": 2, "n_head": 4})", {"hidden size = 2097152", "1048576"});
  expect_refused(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 4097, "n_head": 4})", {"number of layers = 4097", "4096"});
  expect_refused(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                     "num_attention_heads": 65536, "head_dim": 64})",
                 {"attention heads times head_dim = 4194304"});
  expect_refused(
      R"({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4})",
      {"4 attention heads", "32 key/value heads"});
  expect_refused(llama(R"("max_position_embeddings": -1)"), {"max_position_embeddings = -1"});
  expect_refused(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                     "num_key_value_heads": 3})",
      {"4 attention heads", "3 key/value heads"});
  expect_refused(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 5})",
      {"hidden size 64 is not divisible by 5", "head_dim"});
  expect_refused(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 0})",
      {"0 attention heads"});
  expect_refused(llama(R"("head_dim": 15)"), {"head_dim = 15", "even"});
  expect_refused(llama(R"("partial_rotary_factor": 0.05)"), {"even number"});
  expect_refused(llama(R"("partial_rotary_factor": 1.5)"), {"partial_rotary_factor = 1.5"});
  expect_refused(llama(R"("rms_norm_eps": 0)"), {"norm epsilon = 0"});
  expect_refused(llama(R"("initializer_range": -0.02)"), {"initializer_range"});
  expect_refused(llama(R"("rope_theta": 1.0)"), {"rope theta = 1"});
}

TEST(HfConfigRefuses, RopeScalingsThatItDoesNotKnow) {
  for (const std::string type : {"mrope", "su"})
    expect_refused(llama(R"("rope_scaling": {"rope_type": ")" + type + R"(", "factor": 2.0})"),
                   {"rope_scaling.rope_type = \"" + type, "yarn", "longrope"});
  expect_refused(llama(R"("rope_scaling": {"type": "longrope", "long_factor": [1, 2]})"),
                 {"short_factor has 0 numbers", "8 rotated pairs"});
  const std::string eight = "[1, 1, 1, 1.5, 2, 2, 2, 2]";
  expect_refused(llama(R"("rope_scaling": {"type": "longrope", "short_factor": )" + eight + R"(, "long_factor": [1]})"),
                 {"long_factor has 1 numbers"});
  expect_refused(
      llama(R"("rope_scaling": {"type": "longrope", "short_factor": )" + eight + R"(, "long_factor": [1, 1, 1, 0, 2, 2, 2, 2]})"),
      {"long_factor = 0", "above 0"});
  expect_refused(llama(R"("rope_scaling": {"type": "longrope", "short_factor": 3})"), {"short_factor = 3", "list of numbers"});
  expect_refused(llama(R"("rope_scaling": {"type": "longrope", "short_factor": ["x"]})"), {"list of numbers"});
  expect_refused(llama(R"("rope_parameters": {"full_attention": {"rope_theta": 10000.0},
                                              "sliding_attention": {"rope_theta": 5000.0}})"),
                 {"model.rope_parameters.sliding_attention", "differs from that of full_attention"});
  for (const std::string type : {"linear", "dynamic"})
    expect_refused(llama(R"("rope_scaling": {"type": ")" + type + "\"}"), {"factor", "needs a factor"});
  expect_refused(llama(R"("head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 2.0})"), {"head_dim = 2", "at least 4"});
  expect_refused(llama(R"("rope_scaling": {"type": "linear", "factor": -1.0})"), {"rope factor = -1"});
  expect_refused(llama(R"("rope_scaling": 3)"), {"rope_scaling: must be an object"});
  expect_refused(llama(R"("rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2.0})"), {"contradicts"});
  expect_refused(llama(R"("rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"})"),
                 {"contradicts rope_parameters"});
  expect_refused(llama(R"("rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0})"),
                 {"high_freq_factor = 4"});
  expect_refused(llama(R"("rope_scaling": {"type": "llama3", "factor": 8.0, "original_max_position_embeddings": -5})"),
                 {"original_max_position_embeddings"});
  expect_refused(llama(R"("rope_scaling": {"type": "yarn", "original_max_position_embeddings": -5})"),
                 {"original_max_position_embeddings"});
  expect_refused(llama(R"("rope_scaling": {"type": "yarn", "factor": 8.0, "beta_fast": 0.5})"), {"beta_fast = 0.5"});
  expect_refused(llama(R"("rope_scaling": {"type": "yarn", "factor": 8.0, "attention_factor": 0})"), {"attention_factor = 0"});
  expect_refused(llama(R"("rope_interleaved": true)"), {"rope_interleaved = true"});
}

TEST(HfConfigRefuses, FeaturesThatDoNotExistHere) {
  expect_refused(llama(R"("hidden_act": "gelu")"), {"hidden_act = \"gelu\"", "silu"});
  expect_refused(gpt2(R"("activation_function": "relu")"), {"activation_function", "gelu_new"});
  expect_refused(gpt2(R"("scale_attn_weights": false)"), {"scale_attn_weights = false", "set it to true"});
  expect_refused(gpt2(R"("scale_attn_by_inverse_layer_idx": true)"), {"set it to false"});
  expect_refused(gpt2(R"("add_cross_attention": true)"), {"cross-attention"});
  expect_refused(llama(R"("quantization_config": {"bits": 4})"), {"quantization_config", "quantised"});
  for (const std::string limit : {"0", "-8.0", "true"})
    expect_refused(family("olmo", "\"clip_qkv\": " + limit), {"clip_qkv = " + limit});
  for (const std::string other : {"llama", "olmo2"})
    expect_refused(family(other, R"("clip_qkv": 8.0)"), {"clip_qkv = 8.0", "unknown key"});
  for (const std::string key : {"num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok"})
    expect_refused(llama("\"" + key + "\": 8"), {"model." + key + " = 8", "mixture-of-experts"});
  for (const std::string key : {"attn_logit_softcapping", "final_logit_softcapping"})
    for (const std::string cap : {"-30.0", "1e39", "1e-46"})
      expect_refused(llama("\"" + key + "\": " + cap), {"model." + key + " = ", "from 1.2e-38 to 3.4e38, or 0 or null"});
  expect_refused(llama(R"("logits_soft_cap": 30.0)"), {"model.logits_soft_cap = 30", "final_logit_softcapping"});
  expect_refused(R"({"model_type": "gemma2"})", {"model.model_type = \"gemma2\"", "must be one of"});
  expect_refused(family("phi3", R"("lm_head_bias": true)"), {"lm_head_bias = true", "set it to false"});
  expect_refused(family("phi3", R"("interpolate_factor": 2)"), {"interpolate_factor = 2", "set it to 1"});
  expect_refused(family("mistral", R"("attention_bias": true)"), {"attention_bias = true", "set it to false"});
  for (const std::string key : {"resid_pdrop", "full_attn_mod"})  // Phi-3's alone
    expect_refused(family("mistral", "\"" + key + "\": 1"), {"model." + key});
}

TEST(HfConfigRefuses, DropoutThatItDoesNotDo) {
  expect_refused(gpt2(R"("attn_pdrop": 0.1)"), {"model.attn_pdrop = 0.1", "set it to 0", "model.dropout"});
  expect_refused(llama(R"("attention_dropout": 0.1)"), {"model.attention_dropout = 0.1"});
  expect_refused(gpt2(R"("resid_pdrop": 1.0)"), {"residual dropout = 1"});
  expect_refused(gpt2(R"("embd_pdrop": -0.1)"), {"embedding dropout = -0.1"});
  EXPECT_THROW(model_config_from_hf_json("{" + kGpt2 + "}", "model", 1.5), ConfigError);
}

TEST(HfConfigRefuses, SlidingWindowsThatItDoesNotDo) {
  expect_refused(family("mistral", R"("sliding_window": 0)"), {"sliding_window = 0", "at least 1, or null"});
  expect_refused(llama(R"("layer_types": ["full_attention", "sliding_attention"])"), {"layer_types", "not supported"});
  expect_refused(llama(R"("layer_types": ["full_attention", "linear_attention"])"), {"only \"full_attention\" and"});
  expect_refused(llama(R"("layer_types": ["full_attention"])"), {"one entry per layer (2)"});
}

TEST(HfConfigRefuses, FilesAreNamedAsFiles) {
  expect_parts(error_of<ConfigError>([&] { model_config_from_hf_json(R"({"model_type": "bert"})", "models/x/config.json"); }),
               {"models/x/config.json: model_type = \"bert\": ", "gpt2, llama, qwen2, qwen3, mistral, olmo, olmo2, phi3"});
}

}  // namespace
}  // namespace trident
