// The tensors of a Hugging Face folder against the parameters that layers declare, and names as files spell them.
#include "model/config/hf_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/layers/tiny_models.h"

namespace trident {
namespace {

using Shapes = std::map<std::string, std::pair<std::vector<std::int64_t>, bool>>;  // and whether transposed

Shapes declared(const ModelConfig& config, int degree) {
  Shapes shapes;
  for (int unit = 0; unit < num_units(config); ++unit) {
    for (const ParamSpec& spec : unit_params(config, {degree, false}, unit)) {
      for (const PartSpec& part : spec.parts) {
        std::vector<std::int64_t> shape;
        for (int d = 0; d < part.tensor_shape.rank(); ++d) shape.push_back(part.tensor_shape[d]);
        if (part.transposed_on_disk) std::ranges::reverse(shape);
        shapes[part.tensor] = {shape, part.transposed_on_disk};
      }
    }
  }
  return shapes;
}

Shapes listed(const ModelConfig& config) {
  Shapes shapes;
  for (const HfTensor& tensor : hf_tensors(config)) {
    EXPECT_FALSE(shapes.contains(tensor.name)) << tensor.name << ": twice";
    shapes[tensor.name] = {tensor.shape, tensor.transposed};
  }
  return shapes;
}

TEST(HfTensorsTest, AreTheTensorsThatLayersDeclare) {
  for (const testing::TinyModel& model : testing::tiny_models()) {
    for (const bool tied : {false, true}) {
      for (const bool biases : {false, true}) {
        ModelConfig config = model.config;
        config.tie_embeddings = tied;
        config.qkv_bias = config.output_bias = config.mlp_bias = biases;
        for (const int degree : {1, 2, 4}) EXPECT_EQ(listed(config), declared(config, degree)) << model.name << ", tp " << degree;
      }
    }
  }
}

// Row ranges of a fused tensor, which are different parameters' at tp 4 (two key/value heads), cover it once.
TEST(HfTensorsTest, FusedRowsAreSharedOutWithoutGaps) {
  for (const int degree : {1, 4}) {
    std::map<std::string, std::vector<std::pair<std::int64_t, std::int64_t>>> ranges;
    for (const ParamSpec& spec : unit_params(testing::tiny_phi3(), {degree, false}, 1)) {
      for (const PartSpec& part : spec.parts) ranges[part.tensor].emplace_back(part.row_begin, part.rows);
    }
    using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;
    EXPECT_EQ(ranges.at("model.layers.0.self_attn.qkv_proj.weight"), (Ranges{{0, 16}, {16, 8}, {24, 8}}));
    EXPECT_EQ(ranges.at("model.layers.0.mlp.gate_up_proj.weight"), (Ranges{{0, 24}, {24, 24}}));
  }
}

std::vector<std::string> names(const ModelConfig& config) {
  std::vector<std::string> all;
  for (const HfTensor& tensor : hf_tensors(config)) all.push_back(tensor.name);
  return all;
}

TEST(HfTensorsTest, OfOneBlock) {
  ModelConfig olmo2 = testing::tiny_olmo2();
  olmo2.layers = 1;
  const std::string block = "model.layers.0.";
  EXPECT_EQ(names(olmo2),
            (std::vector<std::string>{"model.embed_tokens.weight", block + "self_attn.q_proj.weight",
                                      block + "self_attn.k_proj.weight", block + "self_attn.v_proj.weight",
                                      block + "self_attn.o_proj.weight", block + "self_attn.q_norm.weight",
                                      block + "self_attn.k_norm.weight", block + "mlp.gate_proj.weight",
                                      block + "mlp.up_proj.weight", block + "mlp.down_proj.weight",
                                      block + "post_attention_layernorm.weight",
                                      block + "post_feedforward_layernorm.weight", "model.norm.weight", "lm_head.weight"}));
  EXPECT_EQ(hf_tensors(olmo2)[5], (HfTensor{block + "self_attn.q_norm.weight", {16}, false}));
  EXPECT_EQ(hf_tensors(olmo2)[6], (HfTensor{block + "self_attn.k_norm.weight", {8}, false}));
  ModelConfig phi3 = testing::tiny_phi3();
  phi3.layers = 1;
  EXPECT_EQ(hf_tensors(phi3)[2], (HfTensor{block + "self_attn.qkv_proj.weight", {32, 16}, false}));
  EXPECT_EQ(hf_tensors(phi3)[3], (HfTensor{block + "mlp.gate_up_proj.weight", {48, 16}, false}));
  const ModelConfig gpt2 = testing::tiny_gpt2();
  EXPECT_EQ(hf_tensors(gpt2)[4], (HfTensor{"transformer.h.0.attn.c_attn.weight", {16, 48}, true}));
  EXPECT_EQ(hf_tensors(gpt2)[5], (HfTensor{"transformer.h.0.attn.c_attn.bias", {48}, false}));
}

TEST(HfTensorsTest, NamesInFiles) {
  const HfNames gpt2(testing::tiny_gpt2());
  for (const std::string prefix : {"", "transformer."}) {
    EXPECT_EQ(gpt2(prefix + "h.1.mlp.c_fc.weight").kind, HfNameKind::kTensor);
    EXPECT_EQ(gpt2(prefix + "h.1.mlp.c_fc.weight").tensor, "transformer.h.1.mlp.c_fc.weight");
    EXPECT_EQ(gpt2(prefix + "h.1.attn.bias").kind, HfNameKind::kBuffer);
    EXPECT_EQ(gpt2(prefix + "h.1.attn.masked_bias").kind, HfNameKind::kBuffer);
    EXPECT_EQ(gpt2(prefix + "h.1.attn.c_attn.bias").kind, HfNameKind::kTensor);
    EXPECT_EQ(gpt2(prefix + "h.2.mlp.c_fc.weight").kind, HfNameKind::kUnknown) << "there are two blocks";
  }
  EXPECT_EQ(gpt2("lm_head.weight").kind, HfNameKind::kTiedHead);
  EXPECT_EQ(gpt2("lm_head.weight").tensor, "transformer.wte.weight");
  const HfNames llama(testing::tiny_llama());
  EXPECT_EQ(llama("lm_head.weight").kind, HfNameKind::kTensor) << "it is not tied";
  EXPECT_EQ(llama("layers.0.input_layernorm.weight").tensor, "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(llama("model.layers.0.self_attn.rotary_emb.inv_freq").kind, HfNameKind::kBuffer);
  EXPECT_EQ(llama("model.layers.0.attn.bias").kind, HfNameKind::kUnknown) << "a mask of GPT-2";
  EXPECT_EQ(llama("model.layers.0.self_attn.q_proj.bias").kind, HfNameKind::kUnknown) << "it has no biases";
  EXPECT_EQ(llama("").kind, HfNameKind::kUnknown);
}

}  // namespace
}  // namespace trident
