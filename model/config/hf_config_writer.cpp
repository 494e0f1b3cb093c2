#include "model/config/hf_config_writer.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/at.h"
#include "core/check.h"

namespace trident {
namespace {

// The value of "architectures" by family.
constexpr std::array<std::string_view, 8> kClassNames{
    "GPT2LMHeadModel", "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM", "OlmoForCausalLM",
    "Olmo2ForCausalLM", "Phi3ForCausalLM"};

void set_given(JsonValue& object, std::string_view key, const std::optional<double>& value) {
  if (value) object.set(key, *value);
}

JsonValue rope_scaling(const RopeConfig& rope, ModelFamily family) {
  if (rope.scaling == RopeScaling::kNone) return {};
  JsonValue object;
  object.set("rope_type", to_string(rope.scaling));
  if (family == ModelFamily::kPhi3) object.set("type", to_string(rope.scaling));  // its own code reads no other spelling
  if (rope.scaling == RopeScaling::kLongRope) {
    object.set("short_factor", rope.short_factors);
    object.set("long_factor", rope.long_factors);
    if (family != ModelFamily::kPhi3) object.set("factor", rope.factor);
  } else {
    object.set("factor", rope.factor);
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    object.set("low_freq_factor", rope.low_freq_factor);
    object.set("high_freq_factor", rope.high_freq_factor);
  }
  if (rope.scaling == RopeScaling::kYarn) {
    object.set("beta_fast", rope.beta_fast);
    object.set("beta_slow", rope.beta_slow);
    set_given(object, "mscale", rope.mscale);
    set_given(object, "mscale_all_dim", rope.mscale_all_dim);
    if (!rope.truncate) object.set("truncate", false);
  }
  set_given(object, "attention_factor", rope.attention_factor);
  if (rope.scaling != RopeScaling::kLinear && rope.scaling != RopeScaling::kDynamic && family != ModelFamily::kPhi3)
    object.set("original_max_position_embeddings", rope.original_max_positions);
  return object;
}

void add_gpt2(const ModelConfig& config, JsonValue& json) {
  json.set("n_embd", config.hidden);
  json.set("n_layer", config.layers);
  json.set("n_head", config.heads);
  json.set("n_inner", config.ffn);
  json.set("n_positions", config.max_positions);
  json.set("n_ctx", config.max_positions);
  json.set("activation_function", "gelu_new");
  json.set("layer_norm_epsilon", config.norm_eps);
  json.set("attn_pdrop", 0.0);
  json.set("embd_pdrop", config.embedding_dropout);
  json.set("resid_pdrop", config.residual_dropout);
  json.set("scale_attn_weights", true);
}

void add_window(const ModelConfig& config, JsonValue& json) {
  const JsonValue window = config.sliding_window > 0 ? JsonValue(config.sliding_window) : JsonValue();
  const std::vector<bool>& slides = config.sliding_layers;
  const auto first = std::ranges::find(slides, true);
  switch (config.family) {
    case ModelFamily::kQwen2:
    case ModelFamily::kQwen3:
      json.set("use_sliding_window", config.sliding_window > 0);
      json.set("sliding_window", window);
      json.set("max_window_layers", config.sliding_window > 0 ? first - slides.begin() : config.layers);
      if (std::find(first, slides.end(), false) != slides.end()) {  // no layer from which on all slide
        JsonValue::Array types;
        for (const bool sliding : slides) types.emplace_back(sliding ? "sliding_attention" : "full_attention");
        json.set("layer_types", std::move(types));
      }
      break;
    case ModelFamily::kMistral:
    case ModelFamily::kPhi3: json.set("sliding_window", window); break;
    default: break;
  }
}

void add_llama_like(const ModelConfig& config, JsonValue& json) {
  const ModelFamily family = config.family;
  json.set("hidden_size", config.hidden);
  json.set("intermediate_size", config.ffn);
  json.set("num_hidden_layers", config.layers);
  json.set("num_attention_heads", config.heads);
  json.set("num_key_value_heads", config.kv_heads);
  if (family == ModelFamily::kQwen3 || config.head_dim * config.heads != config.hidden) json.set("head_dim", config.head_dim);
  json.set("max_position_embeddings", config.max_positions);
  json.set("hidden_act", "silu");
  if (family == ModelFamily::kOlmo)
    json.set("clip_qkv", config.clip_qkv > 0 ? JsonValue(config.clip_qkv) : JsonValue());
  else
    json.set("rms_norm_eps", config.norm_eps);
  json.set("rope_theta", config.rope.theta);
  json.set("rope_scaling", rope_scaling(config.rope, family));
  if (config.rope.partial_rotary_factor != 1.0) json.set("partial_rotary_factor", config.rope.partial_rotary_factor);
  if (family == ModelFamily::kPhi3) {
    const bool scaled = config.rope.scaling != RopeScaling::kNone;
    json.set("original_max_position_embeddings", scaled ? config.rope.original_max_positions : config.max_positions);
    json.set("embd_pdrop", config.embedding_dropout);
    json.set("resid_pdrop", config.residual_dropout);
    json.set("pad_token_id", JsonValue());  // its default lies beyond small vocabularies
  }
  if (family == ModelFamily::kLlama || family == ModelFamily::kQwen3 || family == ModelFamily::kOlmo ||
      family == ModelFamily::kOlmo2)
    json.set("attention_bias", config.qkv_bias);
  if (family == ModelFamily::kLlama) json.set("mlp_bias", config.mlp_bias);
  json.set("attention_dropout", 0.0);
  add_window(config, json);
}

}  // namespace

std::string_view hf_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    default: break;
  }
  TRIDENT_CHECK(false, "no weights are {}", to_string(dtype));
}

JsonValue hf_config_json(const ModelConfig& config, DType dtype) {
  JsonValue json;
  json.set("architectures", JsonValue::Array{JsonValue(at(kClassNames, config.family))});
  json.set("model_type", to_string(config.family));
  json.set("vocab_size", config.vocab_size);
  if (config.family == ModelFamily::kGpt2)
    add_gpt2(config, json);
  else
    add_llama_like(config, json);
  json.set("initializer_range", config.init_std);
  if (config.attention_softcap > 0) json.set("attn_logit_softcapping", config.attention_softcap);
  if (config.logit_softcap > 0) json.set("final_logit_softcapping", config.logit_softcap);
  json.set("tie_word_embeddings", config.tie_embeddings);
  json.set("use_cache", true);
  json.set("torch_dtype", hf_dtype_name(dtype));
  json.set("dtype", hf_dtype_name(dtype));
  return json;
}

}  // namespace trident
