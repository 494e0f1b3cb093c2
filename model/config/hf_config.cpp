// Hugging Face's config.json -> ModelConfig, family by family. The families' defaults are those of transformers' configuration
// classes (models/*/configuration_*.py).
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/nearest_name.h"
#include "model/config/hf_reader.h"
#include "model/config/model_config.h"

namespace trident {
namespace {

// ---- rotary embedding, in the dialects of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters)

// Without scaling, numbers that only a scaling would read do not make two models different.
RopeConfig unscaled(const RopeConfig& rope) {
  RopeConfig plain;
  plain.theta = rope.theta;
  plain.partial_rotary_factor = rope.partial_rotary_factor;
  return plain;
}

RopeScaling read_scaling(HfReader& reader, ModelFamily family) {
  const std::string_view key = reader.spelling("rope_type", "type");
  const std::string type = reader.text(key, "default");
  // The first files of Phi-3 called it "su" and "yarn".
  const bool renamed = family == ModelFamily::kPhi3 && (type == "su" || type == "yarn");
  if (renamed) return RopeScaling::kLongRope;
  if (const auto scaling = parse_name<RopeScaling>(type)) return *scaling;
  reader.refuse(key, "this scaling is not supported; supported are default, linear, dynamic, llama3, yarn and longrope");
}

std::vector<double> read_factors(HfReader& reader, std::string_view key) {
  const JsonValue* list = reader.find(key);
  if (list == nullptr) return {};
  if (!list->is_array()) reader.refuse(key, "must be a list of numbers");
  std::vector<double> factors;
  for (const JsonValue& item : list->items()) {
    if (!item.is_number()) reader.refuse(key, "must be a list of numbers");
    factors.push_back(item.as_number());
  }
  return factors;
}

struct RopeSource {
  ModelFamily family;
  std::int64_t max_positions;
  RopeConfig base;  // from the keys beside the object
};

RopeConfig read_object(HfReader reader, const RopeSource& source) {
  RopeConfig rope = source.base;
  rope.scaling = read_scaling(reader, source.family);
  rope.theta = reader.number("rope_theta", rope.theta);
  rope.partial_rotary_factor = reader.number("partial_rotary_factor", rope.partial_rotary_factor);
  const std::optional<std::int64_t> inner = reader.optional_integer("original_max_position_embeddings");
  const std::optional<double> factor = reader.optional_number("factor");
  rope.low_freq_factor = reader.number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = reader.number("high_freq_factor", rope.high_freq_factor);
  rope.beta_fast = reader.number("beta_fast", rope.beta_fast);
  rope.beta_slow = reader.number("beta_slow", rope.beta_slow);
  rope.attention_factor = reader.optional_number("attention_factor");
  rope.mscale = reader.optional_number("mscale");
  rope.mscale_all_dim = reader.optional_number("mscale_all_dim");
  rope.truncate = reader.boolean("truncate", true);
  rope.short_factors = read_factors(reader, "short_factor");
  rope.long_factors = read_factors(reader, "long_factor");
  reader.ignore("finetuned");
  reader.refuse_unknown_keys();
  if (rope.scaling == RopeScaling::kNone) return unscaled(rope);

  // A key beside the object wins over the one inside (Phi-3's spelling); without either the frequencies were trained for the
  // configured context, which Phi-3 takes to be 4096.
  const std::int64_t trained = source.family == ModelFamily::kPhi3 ? 4096 : source.max_positions;
  if (rope.original_max_positions == 0) rope.original_max_positions = inner.value_or(trained);
  if (rope.scaling == RopeScaling::kDynamic) rope.original_max_positions = source.max_positions;  // whatever else the file says
  const bool derives_factor = rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLongRope;
  if (!factor && !derives_factor)
    reader.refuse("factor", fmt::format("scaling \"{}\" needs a factor", to_string(rope.scaling)));
  if (!factor && rope.original_max_positions < 1) reader.refuse("original_max_position_embeddings", "must be at least 1");
  rope.factor = factor ? *factor : static_cast<double>(source.max_positions) / static_cast<double>(rope.original_max_positions);
  return rope;
}

// One object, or one for each kind of layer, which must agree.
RopeConfig read_objects(const HfReader& reader, const JsonValue* object, const std::string& where, const RopeSource& source) {
  if (object == nullptr) return unscaled(source.base);
  std::optional<RopeConfig> found;
  for (const std::string_view kind : {"full_attention", "sliding_attention"}) {
    const JsonValue* of_kind = object->find(kind);
    if (of_kind == nullptr || of_kind->is_null()) continue;
    const std::string path = fmt::format("{}.{}", where, kind);
    const RopeConfig rope = read_object(reader.inner(*of_kind, path), source);
    if (found && !(*found == rope))
      throw ConfigError(fmt::format("{} = {}: differs from that of full_attention; layers of two kinds are not supported", path,
                                    to_json_text(*of_kind)));
    found = rope;
  }
  return found ? *found : read_object(reader.inner(*object, where), source);
}

// `family`, `max_positions` have been read. Features that this program lacks are refused by key (ConfigError).
RopeConfig read_hf_rope(HfReader& reader, ModelFamily family, std::int64_t max_positions) {
  RopeSource source{family, max_positions, {}};
  RopeConfig& base = source.base;
  base.theta = reader.number("rope_theta", base.theta);
  base.partial_rotary_factor = reader.number("partial_rotary_factor", base.partial_rotary_factor);
  base.original_max_positions = reader.integer("original_max_position_embeddings", 0);
  reader.refuse_true("rope_interleaved", "rotation of neighbouring elements is");
  reader.refuse_true("use_mrope", "multi-dimensional rotary embedding is");
  const JsonValue* old_object = reader.find("rope_scaling", "an object", "null");
  const JsonValue* new_object = reader.find("rope_parameters", "an object", "null");
  const RopeConfig from_old = read_objects(reader, old_object, reader.path("rope_scaling"), source);
  const RopeConfig from_new = read_objects(reader, new_object, reader.path("rope_parameters"), source);
  if (old_object != nullptr && new_object != nullptr && !(from_old == from_new))
    reader.refuse("rope_scaling", "contradicts rope_parameters, the newer spelling of the same thing; keep one");
  return new_object != nullptr ? from_new : from_old;
}

// ---- families

// The differences between families whose keys are Llama's. 0 and empty: the key must say it, or derives from others.
struct FamilyTraits {
  ModelFamily family;
  std::string_view class_prefix;   // of architectures[0]: LlamaForCausalLM
  std::int64_t vocab_size = 0;     // default
  std::int64_t kv_heads = 0;       // default; 0: as many as heads
  std::int64_t head_dim = 0;       // default; 0: hidden / heads
  std::int64_t max_positions = 0;  // default
  double norm_eps = 1e-6;          // default
};

constexpr std::array<FamilyTraits, 8> kFamilies = {{
    {ModelFamily::kGpt2, "GPT2", 50257, 0, 0, 1024},
    {ModelFamily::kLlama, "Llama", 32000, 0, 0, 2048},
    {ModelFamily::kQwen2, "Qwen2", 151936, 32, 0, 32768},
    {ModelFamily::kQwen3, "Qwen3", 151936, 32, 128, 32768},
    {ModelFamily::kMistral, "Mistral", 32000, 8, 0, 131072},
    {ModelFamily::kOlmo, "Olmo", 50304, 0, 0, 2048},
    {ModelFamily::kOlmo2, "Olmo2", 50304, 0, 0, 2048, 1e-5},
    {ModelFamily::kPhi3, "Phi3", 32064, 0, 0, 4096, 1e-5},
}};

constexpr std::array<std::string_view, 10> kExpertModels = {"mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3",
                                                            "olmoe",   "gpt_oss",   "dbrx",      "granitemoe",  "phimoe"};

// Keys that say nothing about what is computed in training, divided by blanks: those of transformers 4.20 to 5 and of the tools
// around it that write their own into its files.
constexpr std::string_view kInformational =
    // files and versions
    "architectures auto_map custom_pipelines transformers_version _name_or_path name_or_path model_name model_id base_model "
    "base_model_name_or_path _commit_hash revision trust_remote_code library_name license language tags transformers.js_config "
    "onnx optimum_version export_model_type _diffusers_version unsloth_version unsloth_fixed unsloth_free axolotl_version "
    "llamafactory_version trl_version peft_version mlx_version mlx_lm_version "
    // types of numbers as they are stored, which the tensors themselves say
    "torch_dtype dtype params_dtype use_bfloat16 bf16 fp16 fp32 _pre_quantization_dtype "
    // tokens and tokenizers
    "bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id cls_token_id mask_token_id eod_token_id "
    "decoder_start_token_id bos_token eos_token pad_token unk_token tokenizer_class tokenizer_name tokenizer_type tokenizer_file "
    "vocab_file add_bos_token add_eos_token add_prefix_space padding_side truncation_side chat_template chat_format prefix "
    // lengths that others cut their texts to
    "n_ctx model_max_length max_sequence_length max_seq_length max_seq_len seq_length seq_len "
    // how the same is computed
    "use_cache pretraining_tp gradient_checkpointing gradient_checkpointing_kwargs use_gradient_checkpointing torchscript "
    "chunk_size_feed_forward xla_device attn_implementation _attn_implementation _attn_implementation_internal "
    "_attn_implementation_autoset attention_implementation attn_impl experts_implementation _experts_implementation "
    "_experts_implementation_internal _flash_attn_2_enabled flash_attention flash_attn use_flash_attn use_flash_attn_2 "
    "use_flash_attention use_flash_attention_2 use_sdpa use_xformers use_memory_efficient_attention use_liger_kernel "
    "use_fused_rms_norm use_fused_rope fuse_norm fuse_swiglu fuse_cross_entropy "
    // outputs, heads and losses of other tasks
    "return_dict use_return_dict output_attentions output_hidden_states output_past output_router_logits num_logits_to_keep "
    "logits_to_keep keys_to_ignore_at_inference loss_type loss_function tf_legacy_loss is_decoder is_encoder_decoder "
    "cross_attention_hidden_size tie_encoder_decoder pruned_heads task_specific_params problem_type finetuning_task id2label "
    "label2id num_labels _num_labels predict_special_tokens n_special is_llama_config "
    // generation
    "max_length min_length max_new_tokens min_new_tokens max_time do_sample early_stopping num_beams num_beam_groups "
    "diversity_penalty temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff penalty_alpha repetition_penalty "
    "encoder_repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids force_words_ids "
    "renormalize_logits constraints forced_bos_token_id forced_eos_token_id forced_decoder_ids remove_invalid_values "
    "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens sequence_bias guidance_scale num_return_sequences "
    "output_scores output_logits return_dict_in_generate stop_strings token_healing watermarking_config low_memory "
    "cache_implementation cache_config return_legacy_cache prompt_lookup_num_tokens max_matching_ngram_size dola_layers "
    "num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold generation_config";

const FamilyTraits& family_traits(HfReader& reader) {
  std::vector<std::string_view> names;
  for (const FamilyTraits& traits : kFamilies) names.push_back(to_string(traits.family));
  const std::string one_of = fmt::format("one of {}", fmt::join(names, ", "));
  reader.find("model_type", one_of);
  const std::string type = reader.text("model_type", "");
  for (const FamilyTraits& traits : kFamilies)
    if (type == to_string(traits.family)) return traits;
  if (std::find(kExpertModels.begin(), kExpertModels.end(), type) != kExpertModels.end())
    reader.refuse("model_type", "mixture-of-experts models are not supported; use a dense model");
  reader.refuse("model_type", fmt::format("must be {}{}", one_of, name_hint(type, names)));
}

// architectures[0] must be a class of the family: a LlamaForCausalLM whose model_type says qwen2 is a mixed-up file.
void check_architectures(HfReader& reader, const FamilyTraits& traits) {
  const JsonValue* names = reader.find("architectures");
  if (names == nullptr || !names->is_array() || names->items().empty() || !names->items()[0].is_string()) return;
  const std::string& name = names->items()[0].as_string();
  const std::string_view rest =
      name.starts_with(traits.class_prefix) ? std::string_view(name).substr(traits.class_prefix.size()) : "";
  if (!rest.starts_with("For") && !rest.starts_with("LMHead") && !rest.starts_with("Model") && !rest.starts_with("DoubleHeads"))
    reader.refuse("architectures", fmt::format("does not go with model_type \"{}\"", to_string(traits.family)));
}

// Keys of models that are something else than this program computes, whatever their model_type says.
void refuse_missing_features(HfReader& reader) {
  constexpr std::string_view kQuantized[] = {"quantization_config", "quantization", "compression_config"};
  constexpr std::string_view kCaps[] = {"logits_soft_cap"};
  constexpr std::string_view kExperts[] = {"num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok",
                                           "moe_intermediate_size"};
  const auto refuse_any = [&](std::span<const std::string_view> keys, std::string_view why) {
    for (const std::string_view key : keys)
      if (const JsonValue* value = reader.find(key); value != nullptr && !says_nothing(*value)) reader.refuse(key, why);
  };
  refuse_any(kQuantized, "quantised models are not supported; start from the unquantised one");
  refuse_any(kCaps, "not supported; give attn_logit_softcapping or final_logit_softcapping");
  refuse_any(kExperts, "mixture-of-experts models are not supported; use a dense model");
}

// A dropout of the file. `replaced`: the user gave one that replaces it.
void refuse_attention_dropout(HfReader& reader, std::string_view key, bool replaced) {
  if (reader.number(key, 0.0) != 0.0 && !replaced)
    reader.refuse(key,
                  "dropout of attention probabilities is not supported; set it to 0, or give model.dropout, which replaces the "
                  "file's dropouts by one on residuals and embeddings");
}

bool has_window_key(ModelFamily family) {
  return family == ModelFamily::kQwen2 || family == ModelFamily::kQwen3 || family == ModelFamily::kMistral ||
         family == ModelFamily::kPhi3;
}

// Whether each layer uses the window that the file gives.
std::vector<bool> read_sliding_layers(HfReader& reader, const ModelConfig& config) {
  const bool switched = config.family == ModelFamily::kQwen2 || config.family == ModelFamily::kQwen3;
  const bool always = has_window_key(config.family) && !switched;  // everywhere, whatever a list says
  const bool enabled = switched ? reader.boolean("use_sliding_window", false) : always;
  const std::int64_t first_sliding_layer = switched ? reader.integer("max_window_layers", 28) : 0;
  std::vector<bool> slides;
  const JsonValue* types = reader.find("layer_types", "a list", "null");
  if (types == nullptr) {
    if (enabled && first_sliding_layer < config.layers && config.layers <= kMaxLayers)  // validate() refuses more
      for (std::int64_t layer = 0; layer < config.layers; ++layer) slides.push_back(layer >= first_sliding_layer);
    return slides;
  }
  if (!types->is_array() || static_cast<std::int64_t>(types->items().size()) != config.layers)
    reader.refuse("layer_types", fmt::format("must be a list with one entry per layer ({})", config.layers));
  for (const JsonValue& type : types->items()) {
    const bool sliding = type.is_string() && type.as_string() == "sliding_attention";
    if (!sliding && !(type.is_string() && type.as_string() == "full_attention"))
      reader.refuse("layer_types", "only \"full_attention\" and \"sliding_attention\" layers are supported");
    if (sliding && !has_window_key(config.family))
      reader.refuse("layer_types", "windows are not supported in models of this family; use \"full_attention\" in every layer");
    slides.push_back(always || (enabled && sliding));
  }
  return slides;
}

// The layers that slide, and their window: none where it hides nothing in the longest sequence.
void read_sliding_window(HfReader& reader, ModelConfig& config) {
  std::vector<bool> slides = read_sliding_layers(reader, config);
  if (!has_window_key(config.family)) return;  // sliding_window is an unknown key there
  // A missing key means 4096, and no window in Phi-3; null no window.
  const std::int64_t missing = config.family == ModelFamily::kPhi3 ? 0 : 4096;
  const bool given = reader.present("sliding_window");
  const std::int64_t window = reader.integer("sliding_window", given ? 0 : missing);
  if (given && reader.find("sliding_window") != nullptr && window < 1)
    reader.refuse("sliding_window", "must be at least 1, or null for no window");
  if (window == 0 || window >= config.longest_sequence() || std::ranges::find(slides, true) == slides.end()) return;
  config.sliding_window = window;
  if (std::ranges::find(slides, false) != slides.end()) config.sliding_layers = std::move(slides);
}

double read_softcap(HfReader& reader, std::string_view key) {
  const double cap = reader.number(key, 0);
  if (cap != 0 && !(cap >= std::numeric_limits<float>::min() && cap <= std::numeric_limits<float>::max()))
    reader.refuse(key, "must be a number from 1.2e-38 to 3.4e38, or 0 or null for none");
  return cap;
}

void read_gpt2(HfReader& reader, std::optional<double> dropout, ModelConfig& config) {
  config.hidden = reader.required_integer(reader.spelling("n_embd", "hidden_size"));
  config.layers = reader.required_integer(reader.spelling("n_layer", "num_hidden_layers"));
  config.heads = reader.required_integer(reader.spelling("n_head", "num_attention_heads"));
  config.max_positions = reader.integer(reader.spelling("n_positions", "max_position_embeddings"), config.max_positions);
  config.kv_heads = config.heads;
  config.ffn = reader.integer("n_inner", 4 * config.hidden, "4 x n_embd");
  config.norm = NormKind::kLayerNorm;
  config.norm_eps = reader.number("layer_norm_epsilon", 1e-5);
  config.activation = Activation::kGeluTanh;
  const std::string activation = reader.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    reader.refuse("activation_function", "not supported; GPT-2 models here use gelu_new, the tanh form of GELU");
  config.position = PositionKind::kLearned;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.tie_embeddings = reader.boolean("tie_word_embeddings", true);
  refuse_attention_dropout(reader, "attn_pdrop", dropout.has_value());
  config.residual_dropout = reader.number("resid_pdrop", 0.0);
  config.embedding_dropout = reader.number("embd_pdrop", 0.0);
  if (!reader.boolean("scale_attn_weights", true))
    reader.refuse("scale_attn_weights", "attention without the 1/sqrt(head_dim) scale is not supported; set it to true");
  reader.refuse_true("scale_attn_by_inverse_layer_idx", "attention scaled by the layer's index is");
  reader.refuse_true("add_cross_attention", "cross-attention is");
  reader.ignore("reorder_and_upcast_attn");  // asks for fp32 attention scores, which are always fp32 here
  reader.ignore_prefix("summary_");
}

// Some families have no biases in any projection, whatever their file says.
void refuse_biases(HfReader& reader) {
  for (const std::string_view key : {"attention_bias", "mlp_bias", "lm_head_bias"})
    reader.refuse_true(key, "a bias in models of this family is");
}

// The switches of Phi-4-mini must be at what that file says.
void read_phi3(HfReader& reader, ModelConfig& config) {
  config.residual_dropout = reader.number("resid_pdrop", 0.0);
  config.embedding_dropout = reader.number("embd_pdrop", 0.0);
  for (const std::string_view key : {"full_attn_mod", "interpolate_factor"})
    if (reader.integer(key, 1) != 1) reader.refuse(key, "not supported; set it to 1");
}

void read_llama_like(HfReader& reader, const FamilyTraits& traits, std::optional<double> dropout, ModelConfig& config) {
  config.hidden = reader.required_integer("hidden_size");
  config.layers = reader.required_integer("num_hidden_layers");
  config.heads = reader.required_integer("num_attention_heads");
  config.max_positions = reader.integer("max_position_embeddings", config.max_positions);
  config.ffn = reader.required_integer("intermediate_size");
  // Null asks for as many as heads; a missing key for the family's default.
  const bool missing = !reader.present("num_key_value_heads");
  config.kv_heads = reader.integer("num_key_value_heads", missing && traits.kv_heads > 0 ? traits.kv_heads : config.heads,
                                   traits.kv_heads > 0 ? "" : "num_attention_heads");
  config.head_dim = reader.integer("head_dim", traits.head_dim, traits.head_dim > 0 ? "" : "hidden_size / num_attention_heads");
  if (reader.find("head_dim") != nullptr && config.head_dim < 1)
    reader.refuse("head_dim", "must be at least 1, or left out: then it is hidden_size / num_attention_heads");
  config.norm = NormKind::kRmsNorm;
  if (config.family == ModelFamily::kOlmo) {
    config.norm = NormKind::kPlainLayerNorm;
    config.norm_eps = 1e-5;
    config.clip_qkv = reader.number("clip_qkv", 0);
    if (reader.find("clip_qkv") != nullptr && !(config.clip_qkv > 0))
      reader.refuse("clip_qkv", "must be above 0, or null for none");
  } else {
    config.norm_eps = reader.number("rms_norm_eps", traits.norm_eps);
  }
  if (reader.text("hidden_act", "silu") != "silu")
    reader.refuse("hidden_act", "not supported; models of this family here use silu (SwiGLU)");
  config.activation = Activation::kSwiGlu;
  config.position = PositionKind::kRope;
  config.rope = read_hf_rope(reader, config.family, config.max_positions);
  switch (config.family) {
    case ModelFamily::kQwen2: config.qkv_bias = true; break;
    case ModelFamily::kLlama: config.mlp_bias = reader.boolean("mlp_bias", false); [[fallthrough]];
    case ModelFamily::kQwen3:
    case ModelFamily::kOlmo:
    case ModelFamily::kOlmo2: config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false); break;
    case ModelFamily::kPhi3: read_phi3(reader, config); [[fallthrough]];
    case ModelFamily::kMistral: refuse_biases(reader); break;
    case ModelFamily::kGpt2: break;
  }
  if (config.family == ModelFamily::kQwen3) config.qk_norm = QkNorm::kPerHead;
  if (config.family == ModelFamily::kOlmo2) {
    config.norm = NormKind::kRmsNormRoundedOnce;
    config.norm_placement = NormPlacement::kAfter;
    config.qk_norm = QkNorm::kFullWidth;
  }
  config.tie_embeddings = reader.boolean("tie_word_embeddings", false);
  refuse_attention_dropout(reader, "attention_dropout", dropout.has_value());
  read_sliding_window(reader, config);
}

ModelConfig read_model(HfReader& reader, std::optional<double> dropout) {
  const FamilyTraits& traits = family_traits(reader);
  check_architectures(reader, traits);
  refuse_missing_features(reader);
  ModelConfig config;
  config.family = traits.family;
  config.vocab_size = reader.integer("vocab_size", traits.vocab_size);
  config.max_positions = traits.max_positions;
  config.init_std = reader.number("initializer_range", 0.02);
  config.attention_softcap = read_softcap(reader, "attn_logit_softcapping");
  config.logit_softcap = read_softcap(reader, "final_logit_softcapping");
  if (config.family == ModelFamily::kGpt2)
    read_gpt2(reader, dropout, config);
  else
    read_llama_like(reader, traits, dropout, config);
  reader.ignore_all(kInformational);
  reader.refuse_unknown_keys();
  return config;
}

// The object without the members that are `dropped`, and so the objects in it, but for those that `own` has.
JsonValue without(const JsonValue& object, const std::set<const JsonMember*>& dropped, const JsonValue& own) {
  JsonValue::Object kept;
  for (const JsonMember& member : object.members()) {
    if (own.find(member.key) != nullptr) kept.push_back(member);
    else if (!dropped.contains(&member))
      kept.push_back({member.key, member.value.is_object() ? without(member.value, dropped, {}) : member.value});
  }
  return kept;
}

// The file's list is of its own number of layers. For the user's it is cut, or goes on where all layers are alike.
void fit_layer_types(JsonValue& file, const JsonValue& own) {
  const JsonValue *const layers = own.find("num_hidden_layers"), *const types = file.find("layer_types");
  if (layers == nullptr || !layers->is_integer() || types == nullptr || !types->is_array() || types->items().empty()) return;
  JsonValue::Array kinds = types->items();
  const std::int64_t count = layers->as_integer();
  const bool goes_on = std::ranges::all_of(kinds, [&](const JsonValue& kind) { return kind == kinds.front(); });
  if (count < 1 || count > (goes_on ? kMaxLayers : std::ssize(kinds))) return;
  kinds.resize(static_cast<std::size_t>(count), JsonValue(kinds.front()));
  file.set("layer_types", std::move(kinds));
}

// The reader asks for a family's keys even where an object has nothing but the family's name.
std::vector<HfKey> keys_of(ModelFamily family) {
  const JsonValue object = JsonValue::Object{{"model_type", to_string(family)}};
  HfReader reader(object, "model");
  try {
    read_model(reader, 0.0);
  } catch (const ConfigError&) {  // names the sizes, which are missing
  }
  return reader.known();
}

}  // namespace

std::vector<HfKey> hf_keys() {
  std::vector<HfKey> all;
  std::vector<std::vector<std::pair<std::string, std::string>>> families_by_default;  // of each of `all`
  for (const FamilyTraits& traits : kFamilies) {
    for (const HfKey& key : keys_of(traits.family)) {
      if (key.takes.empty()) continue;
      const auto at = static_cast<std::size_t>(std::ranges::find(all, key.name, &HfKey::name) - all.begin());
      if (at == all.size()) all.push_back(key), families_by_default.emplace_back();
      auto& defaults = families_by_default[at];
      const auto same = std::ranges::find(defaults, key.fallback, &std::pair<std::string, std::string>::first);
      if (same == defaults.end()) defaults.emplace_back(key.fallback, to_string(traits.family));
      else same->second += fmt::format(", {}", to_string(traits.family));
    }
  }
  for (std::size_t at = 0; at < all.size(); ++at) {
    std::string& text = all[at].fallback;
    text.clear();
    for (const auto& [fallback, families] : families_by_default[at]) {
      const bool is_of_all = std::ranges::count(families, ',') + 1 == std::ssize(kFamilies);
      text += fmt::format("{}{}{}", text.empty() ? "" : "; ", fallback.empty() ? "must be given" : fallback,
                          is_of_all ? "" : fmt::format(" ({})", families));
    }
  }
  return all;
}

bool is_informational_hf_key(std::string_view key) {
  constexpr std::size_t kEnd = kInformational.size();
  for (std::size_t at = kInformational.find(key); !key.empty() && at < kEnd; at = kInformational.find(key, at + 1)) {
    const std::size_t end = at + key.size();
    if ((at == 0 || kInformational[at - 1] == ' ') && (end == kEnd || kInformational[end] == ' ')) return true;
  }
  return false;
}

JsonValue hf_config_keys(JsonValue file, const JsonValue& own) {
  if (file.is_object() && own.is_object()) {
    fit_layer_types(file, own);
    for (const JsonMember& member : own.members()) file.set(member.key, member.value);
  }
  std::set<const JsonMember*> dropped;
  try {
    HfReader reader(file, "", &dropped);
    read_model(reader, 0.0);
  } catch (const ConfigError&) {  // model_config_from_hf() says it with its place
  }
  return without(file, dropped, own);
}

ModelConfig model_config_from_hf(const JsonValue& object, std::string_view where, std::optional<double> dropout,
                                 const JsonValue& origins, const KeyHint& hint) {
  HfReader reader(object, std::string(where), nullptr, origins, hint);
  ModelConfig config = read_model(reader, dropout);
  if (config.head_dim == 0) {
    if (config.heads < 1 || config.hidden % config.heads != 0)
      throw ConfigError(fmt::format("{}: hidden size {} is not divisible by {} attention heads{}", where, config.hidden,
                                    config.heads,
                                    config.family == ModelFamily::kGpt2 ? "" : "; change one of them or give head_dim"));
    config.head_dim = config.hidden / config.heads;
  }
  if (dropout) config.residual_dropout = config.embedding_dropout = *dropout;
  validate(config, where);
  return config;
}

ModelConfig model_config_from_hf(const JsonValue& object, std::string_view where, std::optional<double> dropout) {
  return model_config_from_hf(object, where, dropout, {}, {});
}

ModelConfig model_config_from_hf_json(std::string_view json, std::string_view where, std::optional<double> dropout) {
  return model_config_from_hf(parse_json(json, where), where, dropout);
}

}  // namespace trident
