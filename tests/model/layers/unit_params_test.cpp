// Parameters of units as values: names, parts, shards, partial gradients, what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/config/hf_tensors.h"
#include "model/config/model_presets.h"
#include "model/declare.h"
#include "tests/model/layers/tiny_models.h"
#include "tests/support/error_text.h"
#include "tests/support/param_elements.h"

namespace trident {
namespace {

std::map<std::string, ParamSpec> by_name(const std::vector<ParamSpec>& specs) {
  std::map<std::string, ParamSpec> map;
  for (const ParamSpec& spec : specs) map.emplace(spec.name, spec);
  return map;
}

std::int64_t elements_of(const ModelConfig& config, const TensorLayout& layout) {
  std::int64_t elements = 0;
  for (int unit = 0; unit < num_units(config); ++unit)
    for (const ParamSpec& spec : unit_params(config, layout, unit)) elements += testing::logical_elements(spec);
  return elements;
}

TEST(UnitParamsTest, LlamaBlockNamesItsTensors) {
  const auto specs = by_name(unit_params(testing::tiny_llama(), {2, true}, 2));
  ASSERT_EQ(specs.size(), 6u);
  const ParamSpec& qkv = specs.at("model.layers.1.self_attn.qkv_proj.weight");
  ASSERT_EQ(qkv.parts.size(), 3u);
  EXPECT_EQ(qkv.parts[1].tensor, "model.layers.1.self_attn.k_proj.weight");
  EXPECT_EQ(qkv.parts[1].tensor_shape, (Shape{8, 16}));
  EXPECT_EQ(local_shape(qkv, 2), (Shape{8 + 4 + 4, 16}));
  EXPECT_EQ(local_shape(specs.at("model.layers.1.mlp.gate_up_proj.weight"), 2), (Shape{24, 16}));
  EXPECT_EQ(local_shape(specs.at("model.layers.1.mlp.down_proj.weight"), 2), (Shape{16, 12}));
  EXPECT_TRUE(qkv.weight_decay);
  EXPECT_FALSE(specs.at("model.layers.1.input_layernorm.weight").weight_decay);
  const Init output = specs.at("model.layers.1.self_attn.o_proj.weight").parts[0].init;
  EXPECT_FLOAT_EQ(output.standard_deviation, 0.01f);  // 0.02 / sqrt(2 * 2)
}

TEST(UnitParamsTest, Gpt2ProjectionIsThreeRowRangesOfOneTensor) {
  const auto specs = by_name(unit_params(testing::tiny_gpt2(), {4, false}, 1));
  const ParamSpec& qkv = specs.at("transformer.h.0.attn.c_attn.weight");
  ASSERT_EQ(qkv.parts.size(), 3u);
  for (const int i : {0, 1, 2}) {
    EXPECT_EQ(qkv.parts[static_cast<std::size_t>(i)].tensor, "transformer.h.0.attn.c_attn.weight");
    EXPECT_EQ(qkv.parts[static_cast<std::size_t>(i)].tensor_shape, (Shape{48, 16}));
    EXPECT_EQ(qkv.parts[static_cast<std::size_t>(i)].row_begin, 16 * i);
    EXPECT_TRUE(qkv.parts[static_cast<std::size_t>(i)].transposed_on_disk);
  }
  const ParamSpec& bias = specs.at("transformer.h.0.attn.c_attn.bias");
  EXPECT_EQ(local_shape(bias, 4), (Shape{12}));
  EXPECT_FALSE(bias.parts[0].transposed_on_disk);
  EXPECT_EQ(specs.count("transformer.h.0.ln_2.bias"), 1u);
}

TEST(UnitParamsTest, SequenceParallelismMakesReplicatedGradientsPartial) {
  const std::vector<SubAxis> tp{{Axis::kTensor, 4, 1}};
  const ModelConfig config = testing::tiny_gpt2();
  for (const bool sequence_parallel : {false, true}) {
    const auto block = by_name(unit_params(config, {4, sequence_parallel}, 1));
    const auto ends = by_name(unit_params(config, {4, sequence_parallel}, 0));
    const std::vector<SubAxis> expected = sequence_parallel ? tp : std::vector<SubAxis>{};
    EXPECT_EQ(block.at("transformer.h.0.ln_1.weight").grad_partial_over, expected);
    EXPECT_EQ(block.at("transformer.h.0.attn.c_proj.bias").grad_partial_over, expected);
    EXPECT_EQ(ends.at("transformer.wpe.weight").grad_partial_over, expected);
    EXPECT_TRUE(block.at("transformer.h.0.attn.c_attn.bias").grad_partial_over.empty());
    EXPECT_TRUE(block.at("transformer.h.0.mlp.c_proj.weight").grad_partial_over.empty());
  }
  const auto qwen3 = by_name(unit_params(testing::tiny_qwen3(), {4, false}, 1));
  EXPECT_EQ(qwen3.at("model.layers.0.self_attn.q_norm.weight").grad_partial_over, tp);  // heads are split
  const auto one_rank = by_name(unit_params(testing::tiny_qwen3(), {1, true}, 1));
  EXPECT_TRUE(one_rank.at("model.layers.0.self_attn.k_norm.weight").grad_partial_over.empty());
}

TEST(UnitParamsTest, MoreRanksThanKeyValueHeadsReplicateThem) {
  const auto specs = by_name(unit_params(testing::tiny_llama(), {4, false}, 1));
  const ParamSpec& q = specs.at("model.layers.0.self_attn.q_proj.weight");
  const ParamSpec& kv = specs.at("model.layers.0.self_attn.kv_proj.weight");
  EXPECT_TRUE(q.grad_partial_over.empty());
  EXPECT_EQ(kv.sharding.shards, 2);
  EXPECT_EQ(kv.grad_partial_over, (std::vector<SubAxis>{{Axis::kTensor, 2, 1}}));
  EXPECT_EQ(local_parts(kv, 4, 1)[0].box, local_parts(kv, 4, 0)[0].box);
  EXPECT_FALSE(local_parts(kv, 4, 2)[0].box == local_parts(kv, 4, 0)[0].box);
  const std::vector<SubAxis> axes = partial_axes(testing::tiny_llama(), {4, true});
  EXPECT_EQ(axes.size(), 2u);
  EXPECT_TRUE(partial_axes(testing::tiny_llama(), {1, true}).empty());
}

TEST(UnitParamsTest, NormsOverAllHeadsAreSplitAsTheHeadsAre) {
  const auto block = by_name(unit_params(testing::tiny_olmo2(), {4, false}, 1));  // 4 heads, 2 key/value heads
  const ParamSpec& query = block.at("model.layers.0.self_attn.q_norm.weight");
  const ParamSpec& key = block.at("model.layers.0.self_attn.k_norm.weight");
  EXPECT_EQ(local_shape(query, 4), (Shape{4}));
  EXPECT_TRUE(query.grad_partial_over.empty());
  EXPECT_EQ(local_shape(key, 4), (Shape{4}));
  EXPECT_EQ(key.parts[0].tensor_shape, (Shape{8}));
  EXPECT_EQ(key.grad_partial_over, (std::vector<SubAxis>{{Axis::kTensor, 2, 1}})) << "two ranks hold the same key head";
  EXPECT_FALSE(query.weight_decay || key.weight_decay);
  EXPECT_EQ(block.count("model.layers.0.input_layernorm.weight"), 0u);
  EXPECT_EQ(block.count("model.layers.0.post_feedforward_layernorm.weight"), 1u);
}

TEST(UnitParamsTest, TiedEndsAreOneTensorAndPaddingIsPerRank) {
  const ModelConfig config = testing::tiny_qwen3();
  const ParamSpec table = unit_params(config, {4, false}, 0)[0];
  const ParamSpec head = unit_params(config, {4, false}, head_unit(config))[1];
  EXPECT_EQ(table.tie, TiedEnd::kLookup);
  EXPECT_EQ(head.tie, TiedEnd::kHead);
  EXPECT_NE(table.name, head.name);
  EXPECT_EQ(table.parts[0].tensor, head.parts[0].tensor);
  EXPECT_EQ(table.parts[0].padded_rows, 512);
  EXPECT_EQ(padded_vocabulary(config, 1), 128);
  EXPECT_EQ(testing::logical_elements(table), 50 * 16);
  EXPECT_EQ(unit_params(testing::tiny_llama(), {}, 0)[0].tie, TiedEnd::kNone);
}

TEST(UnitParamsTest, NamesAreUniqueAndSizesDoNotDependOnTheLayout) {
  for (const testing::TinyModel& model : testing::tiny_models()) {
    std::set<std::string> names;
    for (int unit = 0; unit < num_units(model.config); ++unit)
      for (const ParamSpec& spec : unit_params(model.config, {4, true}, unit))
        EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_EQ(elements_of(model.config, {}), elements_of(model.config, {4, true})) << model.name;
  }
}

TEST(UnitParamsTest, PresetsHaveTheirPublishedSizes) {
  const auto size = [](std::string_view preset) {
    const ModelConfig config = model_preset(preset, "model.preset");
    const std::int64_t twice = config.tie_embeddings ? config.vocab_size * config.hidden : 0;
    return elements_of(config, {}) - twice;
  };
  EXPECT_EQ(size("gpt2-124m"), 124'439'808);
  EXPECT_EQ(size("llama2-7b"), 6'738'415'616);
  EXPECT_EQ(size("llama3-8b"), 8'030'261'248);
  EXPECT_EQ(size("qwen2.5-0.5b"), 494'032'768);
}

std::string refusal(const ModelConfig& config, const TensorLayout& layout, std::int64_t sequence) {
  return error_of<ConfigError>([&] { check_layout(config, layout, sequence); });
}

TEST(CheckLayoutTest, RefusesWhatDoesNotDivide) {
  ModelConfig config = testing::tiny_llama();
  EXPECT_EQ(refusal(config, {4, true}, 8), "no error");
  expect_parts(refusal(config, {3, false}, 8),
               {"parallel.tensor = 3: does not divide the model's 4 attention heads, nor its 2 key/value heads; ",
                "use one of 1, 2, 4"});
  config.heads = 12, config.kv_heads = 3;
  EXPECT_EQ(refusal(config, {3, false}, 8), "no error");
  EXPECT_EQ(refusal(config, {6, false}, 8), "no error");
  EXPECT_NE(refusal(config, {2, false}, 8), "no error");  // neither divides nor is a multiple of 3 key/value heads
  config.ffn = 25;
  expect_parts(refusal(config, {3, false}, 8), {"the model's 25 feed-forward columns; use 1"});
}

TEST(CheckLayoutTest, RefusesSequencesThatDoNotFit) {
  const ModelConfig config = testing::tiny_llama();
  expect_parts(refusal(config, {}, 17), {"batch.sequence = 17: ", "16 positions"});
  expect_parts(refusal(config, {4, true}, 10),
               {"batch.sequence = 10: ", "parallel.tensor = 4", "such as 12", "parallel.sequence_parallel"});
  EXPECT_EQ(refusal(config, {4, false}, 10), "no error");
}

// The tensors of a Hugging Face folder against the parameters that layers declare, and names as files spell them.

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

TEST(HfTensorsTest, OneBlockHasItsTensors) {
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
