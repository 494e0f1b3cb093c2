// Tiny architectures, weights and batches for the layer tests.
#pragma once

#include <cstdint>
#include <vector>

#include "core/normals.h"
#include "core/philox.h"
#include "model/gpt.h"
#include "tests/support/reference_model.h"
#include "tests/support/tensor_rank.h"

namespace trident::testing {

struct TinyModel {
  const char* name;
  ModelConfig config;

  friend void PrintTo(const TinyModel& model, std::ostream* out) { *out << model.name; }
};

inline ModelConfig tiny_llama() {
  return {.family = ModelFamily::kLlama, .vocab_size = 50, .hidden = 16, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 4,
          .ffn = 24, .max_positions = 16, .rope = {}};
}
inline ModelConfig tiny_gpt2() {
  ModelConfig c = tiny_llama();
  c.family = ModelFamily::kGpt2;
  c.kv_heads = 4;
  c.norm = NormKind::kLayerNorm;
  c.activation = Activation::kGeluTanh;
  c.position = PositionKind::kLearned;
  c.qkv_bias = c.output_bias = c.mlp_bias = c.tie_embeddings = true;
  return c;
}
// heads * head_dim is not hidden, half of a head is rotated.
inline ModelConfig tiny_qwen2() {
  ModelConfig c = tiny_llama();
  c.family = ModelFamily::kQwen2;
  c.kv_heads = 1;
  c.head_dim = 8;
  c.rope.partial_rotary_factor = 0.5;
  c.qkv_bias = true;
  return c;
}
inline ModelConfig tiny_qwen3() {
  ModelConfig c = tiny_llama();
  c.family = ModelFamily::kQwen3;
  c.head_dim = 8;
  c.qk_norm = QkNorm::kPerHead;
  c.tie_embeddings = true;
  return c;
}
inline ModelConfig tiny_olmo() {
  ModelConfig c = tiny_llama();
  c.family = ModelFamily::kOlmo;
  c.norm = NormKind::kPlainLayerNorm;
  return c;
}
// About a half of queries, keys and values lie beyond the bounds.
inline ModelConfig tiny_clipped_olmo() {
  ModelConfig c = tiny_olmo();
  c.clip_qkv = 0.5;
  return c;
}
// Norms after the two parts of a block, and over all heads of queries and of keys.
inline ModelConfig tiny_olmo2() {
  ModelConfig c = tiny_llama();
  c.family = ModelFamily::kOlmo2;
  c.norm = NormKind::kRmsNormRoundedOnce;
  c.norm_placement = NormPlacement::kAfter;
  c.qk_norm = QkNorm::kFullWidth;
  return c;
}
// Half of a head is rotated; projections are fused on disk.
inline ModelConfig tiny_phi3() {
  ModelConfig c = tiny_llama();
  c.family = ModelFamily::kPhi3;
  c.rope.partial_rotary_factor = 0.5;
  return c;
}
// The second layer sees no further than three tokens.
inline ModelConfig tiny_half_windowed() {
  ModelConfig c = tiny_qwen2();
  c.sliding_window = 3;
  c.sliding_layers = {false, true};
  return c;
}
// Every layer sees no further than five tokens; scores and logits are bounded where most of them lie.
inline ModelConfig tiny_bounded() {
  ModelConfig c = tiny_llama();
  c.family = ModelFamily::kMistral;
  c.sliding_window = 5;
  c.attention_softcap = 0.5;
  c.logit_softcap = 1.25;
  return c;
}
inline ModelConfig with_dropout(ModelConfig c) {
  c.residual_dropout = 0.25;
  c.embedding_dropout = 0.125;
  return c;
}

inline std::vector<TinyModel> tiny_models() {
  return {{"Gpt2", tiny_gpt2()},   {"Llama", tiny_llama()},
          {"Qwen2", tiny_qwen2()}, {"Qwen3", tiny_qwen3()},
          {"Olmo", tiny_olmo()},   {"Olmo2", tiny_olmo2()},
          {"OlmoClipped", tiny_clipped_olmo()}, {"Phi3", tiny_phi3()},   {"Gpt2Dropout", with_dropout(tiny_gpt2())},
          {"Olmo2Dropout", with_dropout(tiny_olmo2())},
          {"HalfWindowed", tiny_half_windowed()}, {"Bounded", tiny_bounded()}};
}

// Every tensor of the model; nothing is zero or one, so that a bias added twice or a norm weight left out shows.
inline LogicalTensors tiny_weights(const ModelConfig& config) {
  LogicalTensors weights;
  for (int unit = 0; unit < num_units(config); ++unit)
    for (const ParamSpec& spec : unit_params(config, {}, unit))
      for (const PartSpec& part : spec.parts) {
        std::vector<double>& values = weights[part.tensor];
        if (!values.empty()) continue;  // another part of the same tensor, or its tied twin
        values.resize(static_cast<std::size_t>(part.tensor_shape.num_elements()));
        const PhiloxKey key = random_key(7, RandomPurpose::kTest, part.tensor);
        const double center = part.init.kind == InitKind::kOnes ? 1.0 : 0.0;
        Normals normals(key);
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = center + static_cast<double>(0.25f * normals.at(i));
      }
  return weights;
}

inline reference::ModelBatch tiny_batch(const ModelConfig& config, std::int64_t sequence = 8, std::int64_t samples = 2) {
  reference::ModelBatch batch;
  batch.sequence = sequence;
  batch.samples = samples;
  batch.step = 3;
  batch.seed = 11;
  batch.gradient_scale = 1.0 / 16;
  for (std::int64_t r = 0; r < batch.rows(); ++r) {
    batch.tokens.push_back(static_cast<std::int32_t>((r * 17 + 3) % config.vocab_size));
    batch.targets.push_back(r % 7 == 5 ? -1 : static_cast<std::int32_t>((r * 23 + 8) % config.vocab_size));
  }
  for (std::int64_t b = 0; b < samples; ++b) batch.sample_numbers.push_back(100 - 3 * b);
  return batch;
}

}  // namespace trident::testing
