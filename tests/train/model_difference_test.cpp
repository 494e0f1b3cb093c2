// model_difference(): the key of config.json in which two models differ, for whatever they can differ in.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "train/run/weights_source.h"

namespace trident {
namespace {

ModelConfig model_of(const std::string& type) {
  const std::string sizes =
      type == "gpt2"
          ? R"("n_embd": 64, "n_layer": 3, "n_head": 4)"
          : R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,)"
                       R"( "num_key_value_heads": 4)";
  return model_config_from_hf_json(R"({"model_type": ")" + type + R"(", "vocab_size": 90, )" + sizes + "}", "model");
}

struct Change {
  const char* type;
  const char* key;
  std::function<void(ModelConfig&)> make;
};

const Change kChanges[] = {
    {"llama", "model_type", [](ModelConfig& m) { m.family = ModelFamily::kMistral; }},
    {"llama", "vocab_size", [](ModelConfig& m) { m.vocab_size = 91; }},
    {"llama", "hidden_size", [](ModelConfig& m) { m.hidden = 128; }},
    {"gpt2", "n_embd", [](ModelConfig& m) { m.hidden = 128; }},
    {"llama", "num_hidden_layers", [](ModelConfig& m) { m.layers = 4; }},
    {"gpt2", "n_layer", [](ModelConfig& m) { m.layers = 4; }},
    {"llama", "num_attention_heads", [](ModelConfig& m) { m.heads = 8; }},
    {"gpt2", "n_head", [](ModelConfig& m) { m.heads = 8; }},
    {"llama", "num_key_value_heads", [](ModelConfig& m) { m.kv_heads = 2; }},
    {"llama", "head_dim", [](ModelConfig& m) { m.head_dim = 32; }},
    {"llama", "intermediate_size", [](ModelConfig& m) { m.ffn = 97; }},
    {"gpt2", "n_inner", [](ModelConfig& m) { m.ffn = 97; }},
    {"gpt2", "n_positions", [](ModelConfig& m) { m.max_positions += 1; }},
    {"llama", "rms_norm_eps", [](ModelConfig& m) { m.norm_eps = 2e-5; }},
    {"gpt2", "layer_norm_epsilon", [](ModelConfig& m) { m.norm_eps = 2e-5; }},
    {"llama", "attention_bias", [](ModelConfig& m) { m.qkv_bias = true; }},
    {"llama", "attention_bias", [](ModelConfig& m) { m.output_bias = true; }},
    {"llama", "mlp_bias", [](ModelConfig& m) { m.mlp_bias = true; }},
    {"llama", "tie_word_embeddings", [](ModelConfig& m) { m.tie_embeddings = !m.tie_embeddings; }},
    {"llama", "rope_theta", [](ModelConfig& m) { m.rope.theta = 5e5; }},
    {"llama", "partial_rotary_factor", [](ModelConfig& m) { m.rope.partial_rotary_factor = 0.5; }},
    {"llama", "rope_scaling.rope_type", [](ModelConfig& m) { m.rope.scaling = RopeScaling::kLinear; }},
    {"llama", "rope_scaling.factor", [](ModelConfig& m) { m.rope.factor = 2; }},
    {"llama", "rope_scaling", [](ModelConfig& m) { m.rope.low_freq_factor = 1.5; }},
    {"llama", "rope_scaling",
     [](ModelConfig& m) {
       m.rope.long_factors = {1.0, 2.0};
     }},
    {"mistral", "sliding_window", [](ModelConfig& m) { m.sliding_window = 17; }},
    {"mistral", "sliding_window", [](ModelConfig& m) { m.sliding_window = m.sliding_window == 0 ? 9 : 0; }},
    {"llama", "model_type", [](ModelConfig& m) { m.norm = NormKind::kRmsNormRoundedOnce; }},
    {"llama", "model_type", [](ModelConfig& m) { m.norm_placement = NormPlacement::kAfter; }},
    {"olmo", "clip_qkv", [](ModelConfig& m) { m.clip_qkv = 8; }},
    {"llama", "model_type", [](ModelConfig& m) { m.qk_norm = QkNorm::kPerHead; }},
    {"llama", "model_type", [](ModelConfig& m) { m.activation = Activation::kGeluTanh; }},
    {"llama", "model_type", [](ModelConfig& m) { m.position = PositionKind::kLearned; }},
};

TEST(ModelDifference, NamesTheKeyInBothDirections) {
  for (const Change& change : kChanges) {
    const ModelConfig before = model_of(change.type);
    ModelConfig after = before;
    change.make(after);
    ASSERT_FALSE(before == after) << change.key;
    const std::optional<ModelDifference> found = model_difference(before, after), back = model_difference(after, before);
    ASSERT_TRUE(found && back) << change.key;
    EXPECT_EQ(found->key, change.key);
    EXPECT_NE(found->a, found->b) << change.key;
    EXPECT_EQ(back->key, change.key);
  }
}

TEST(ModelDifference, WhatMayDifferIsNone) {
  const ModelConfig llama = model_of("llama");
  ModelConfig other = llama;
  other.max_positions *= 2, other.init_std = 0.5, other.residual_dropout = 0.1, other.embedding_dropout = 0.2;
  EXPECT_FALSE(model_difference(llama, other));
  for (const char* type : {"gpt2", "llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3"})
    EXPECT_FALSE(model_difference(model_of(type), model_of(type))) << type;
}

TEST(ModelDifference, AWindowIsShownAsInTheFile) {
  ModelConfig narrow = model_of("mistral"), none = narrow;
  narrow.sliding_window = 8, none.sliding_window = 0;
  const std::optional<ModelDifference> found = model_difference(narrow, none);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->a, "8");
  EXPECT_EQ(found->b, "null");
}

}  // namespace
}  // namespace trident
