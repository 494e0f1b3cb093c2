#include "model/config/param_names.h"

#include <fmt/core.h>

namespace trident {
namespace {

BlockNames gpt2_block(const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = fmt::format("transformer.h.{}.", layer);
  const std::string qkv = prefix + "attn.c_attn";
  const std::int64_t q = config.query_width(), kv = config.kv_width(), all = q + 2 * kv;
  return {.attention_norm = prefix + "ln_1",
          .mlp_norm = prefix + "ln_2",
          .qkv = qkv,
          .query = qkv + ".query",
          .key_value = qkv + ".key_value",
          .query_key_value = {TensorRows{qkv, all, 0, q}, TensorRows{qkv, all, q, kv}, TensorRows{qkv, all, q + kv, kv}},
          .query_norm = {},
          .key_norm = {},
          .attention_output = prefix + "attn.c_proj",
          .mlp_input = prefix + "mlp.c_fc",
          .mlp_input_parts = {{prefix + "mlp.c_fc", config.ffn, 0, config.ffn}},
          .mlp_output = prefix + "mlp.c_proj",
          .transposed_on_disk = true};
}

// Rows of Phi-3's fused projections are q, then k, then v; and gate, then up.
void fuse_rows(BlockNames& names, const ModelConfig& config) {
  const std::int64_t q = config.query_width(), kv = config.kv_width(), all = q + 2 * kv, f = config.ffn;
  names.query_key_value = {TensorRows{names.qkv, all, 0, q}, TensorRows{names.qkv, all, q, kv},
                           TensorRows{names.qkv, all, q + kv, kv}};
  names.mlp_input_parts = {{names.mlp_input, 2 * f, 0, f}, {names.mlp_input, 2 * f, f, f}};
}

BlockNames llama_block(const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const std::int64_t q = config.query_width(), kv = config.kv_width(), f = config.ffn;
  BlockNames names{.attention_norm = prefix + "input_layernorm",
                   .mlp_norm = prefix + "post_attention_layernorm",
                   .qkv = attention + "qkv_proj",
                   .query = attention + "q_proj",
                   .key_value = attention + "kv_proj",
                   .query_key_value = {TensorRows{attention + "q_proj", q, 0, q}, TensorRows{attention + "k_proj", kv, 0, kv},
                                       TensorRows{attention + "v_proj", kv, 0, kv}},
                   .query_norm = attention + "q_norm",
                   .key_norm = attention + "k_norm",
                   .attention_output = attention + "o_proj",
                   .mlp_input = mlp + "gate_up_proj",
                   .mlp_input_parts = {{mlp + "gate_proj", f, 0, f}, {mlp + "up_proj", f, 0, f}},
                   .mlp_output = mlp + "down_proj",
                   .transposed_on_disk = false};
  if (config.activation != Activation::kSwiGlu) {
    names.mlp_input = mlp + "up_proj";
    names.mlp_input_parts = {{mlp + "up_proj", f, 0, f}};
  }
  if (config.norm_placement == NormPlacement::kAfter) {
    names.attention_norm = prefix + "post_attention_layernorm";
    names.mlp_norm = prefix + "post_feedforward_layernorm";
  }
  if (config.family == ModelFamily::kPhi3) fuse_rows(names, config);
  return names;
}

}  // namespace

BlockNames block_names(const ModelConfig& config, std::int64_t layer) {
  return config.family == ModelFamily::kGpt2 ? gpt2_block(config, layer) : llama_block(config, layer);
}

EndNames end_names(const ModelConfig& config) {
  EndNames names = config.family == ModelFamily::kGpt2
                       ? EndNames{"transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head", "lm_head"}
                       : EndNames{"model.embed_tokens", "model.embed_positions", "model.norm", "lm_head", "lm_head"};
  if (config.tie_embeddings) names.head_tensor = names.embedding;
  return names;
}

}  // namespace trident
