// config.json as it is written, read again: the same model, for every family and for values far from the usual.
#include "model/config/hf_config_writer.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/file_io.h"
#include "model/config/model_config.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

const char* const kFamilies[] = {"gpt2",  "llama",   "llama3", "smollm", "qwen2", "qwen2.5",
                                 "qwen3", "mistral", "olmo",   "olmo2",  "phi3",    "olmo_clipped", "llama_dynamic"};

ModelConfig read_family(const std::string& name) {
  const std::string path = std::string(TRIDENT_MODEL_GOLDENS "/families/") + name + "/config.json";
  return model_config_from_hf_json(read_file(path), path);
}

void expect_same(const ModelConfig& model) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::string text = to_json_text(hf_config_json(model, dtype), 2);
    EXPECT_TRUE(model_config_from_hf_json(text, "written") == model) << text;
    expect_parts(text, {"\"dtype\": \"" + std::string(hf_dtype_name(dtype)) + "\""});
  }
}

TEST(HfConfigWriter, WhatTransformersWroteComesBack) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    expect_same(read_family(family));
  }
}

// Numbers that need all their digits, and sizes that no default has.
TEST(HfConfigWriter, UnusualNumbersComeBack) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    ModelConfig model = read_family(family);
    model.vocab_size = 50257 * 3;
    model.layers = 7;
    model.ffn = 12345;
    model.max_positions = 1 << 20;
    model.init_std = 0.1 + 0.2;
    if (model.norm != NormKind::kPlainLayerNorm) model.norm_eps = 1.0 / 3e6;
    if (model.position == PositionKind::kRope) model.rope.theta = 1e7 / 3;
    if (model.family == ModelFamily::kPhi3 && model.rope.scaling == RopeScaling::kLongRope)
      model.rope.factor = static_cast<double>(model.max_positions) / static_cast<double>(model.rope.original_max_positions);
    if (model.rope.scaling == RopeScaling::kDynamic) model.rope.original_max_positions = model.max_positions;
    if (model.family == ModelFamily::kGpt2 || model.family == ModelFamily::kPhi3)
      model.residual_dropout = 1.0 / 7, model.embedding_dropout = 0.25;
    expect_same(model);
  }
}

TEST(HfConfigWriter, EveryOptionOfLlamaComesBack) {
  for (const bool biased : {false, true}) {
    for (const bool tied : {false, true}) {
      ModelConfig model = read_family("llama");
      model.qkv_bias = model.output_bias = model.mlp_bias = biased;
      model.tie_embeddings = tied;
      model.head_dim = 64;  // not hidden / heads
      model.kv_heads = 1;
      expect_same(model);
    }
  }
}

TEST(HfConfigWriter, EveryScalingComesBack) {
  for (const char* family : {"llama", "qwen3", "mistral", "olmo2"}) {
    SCOPED_TRACE(family);
    ModelConfig model = read_family(family);
    RopeConfig& rope = model.rope;
    rope = {};
    rope.theta = 500000;
    expect_same(model);
    rope.scaling = RopeScaling::kLinear;
    rope.factor = 2.5;
    rope.original_max_positions = model.max_positions;  // of no meaning here; what the reader fills in
    expect_same(model);
    rope.scaling = RopeScaling::kDynamic;
    expect_same(model);
    rope.scaling = RopeScaling::kLlama3;
    rope.original_max_positions = 24;
    rope.low_freq_factor = 1.5, rope.high_freq_factor = 3.25;
    expect_same(model);
    rope = {};
    rope.theta = 500000;
    rope.scaling = RopeScaling::kYarn;
    rope.factor = 3;
    rope.original_max_positions = 24;
    expect_same(model);
    rope.beta_fast = 16, rope.beta_slow = 2;
    rope.truncate = false;
    rope.mscale = 0.7, rope.mscale_all_dim = 0.9;
    expect_same(model);
    rope.mscale.reset(), rope.mscale_all_dim.reset();
    rope.attention_factor = 1.125;
    expect_same(model);
  }
}

TEST(HfConfigWriter, WindowsComeBack) {
  for (const char* family : {"qwen2", "qwen3", "mistral", "phi3"}) {
    SCOPED_TRACE(family);
    ModelConfig model = read_family(family);
    for (const std::int64_t window : {0, 1, 16, 63}) {
      model.sliding_window = window;
      expect_same(model);
    }
  }
}

}  // namespace
}  // namespace trident
