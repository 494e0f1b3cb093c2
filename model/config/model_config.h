// The architecture of a decoder-only language model as plain numbers, read from Hugging Face's config.json keys.
//
// Families differ in these fields only, so layers are built from the fields and never ask for the family's name. Sizes are those of
// the whole model: nothing here knows about ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "core/named_enum.h"
#include "core/tuning.h"

namespace trident {

inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 12;  // of a model: files have room for the names of all tensors

enum class ModelFamily : std::uint8_t { kGpt2, kLlama, kQwen2, kQwen3, kMistral, kOlmo, kOlmo2, kPhi3 };
template <>
inline constexpr std::array<std::string_view, 8> kNamesOf<ModelFamily>{
    "gpt2", "llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3"};

// kLayerNorm has weight and bias, the RMS norms a weight, kPlainLayerNorm (OLMo 1) no parameters. kRmsNorm rounds to the compute
// type before the weight counts and after it (Llama), kRmsNormRoundedOnce (OLMo 2) only after it: in fp32 the same.
enum class NormKind : std::uint8_t { kLayerNorm, kRmsNorm, kRmsNormRoundedOnce, kPlainLayerNorm };

// Where a block's two norms stand: before attention and before the feed-forward part, or after them, on what is added to the
// residual stream (OLMo 2).
enum class NormPlacement : std::uint8_t { kBefore, kAfter };

// RMS norm of queries and keys before the rotation: over head_dim of every head with one weight [head_dim] (Qwen3), or over all
// heads at once with weights [heads * head_dim] and [kv_heads * head_dim] (OLMo 2).
enum class QkNorm : std::uint8_t { kNone, kPerHead, kFullWidth };

enum class Activation : std::uint8_t { kGeluTanh, kSwiGlu };
enum class PositionKind : std::uint8_t { kLearned, kRope };
enum class RopeScaling : std::uint8_t { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope };
template <>
inline constexpr std::array<std::string_view, 6> kNamesOf<RopeScaling>{
    "default", "linear", "dynamic", "llama3", "yarn", "longrope"};

// Rotary position embedding (Su et al. 2021, arXiv 2104.09864) in the half-split form: element j of a head is paired with j +
// dim/2, dim = the rotated part of the head. rope_table.h turns this into cos and sin.
struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double partial_rotary_factor = 1.0;                              // rotated fraction of head_dim, in (0, 1]
  double factor = 1.0;                                             // of every scaling: context extension, > 0
  std::int64_t original_max_positions = 0;                         // but linear: context the frequencies were trained for
  double low_freq_factor = 1.0, high_freq_factor = 4.0;            // llama3
  double beta_fast = 32.0, beta_slow = 1.0;                        // yarn: rotations that bound the ramp
  std::optional<double> attention_factor, mscale, mscale_all_dim;  // scale of cos and sin; see rope_attention_factor()
  bool truncate = true;                                            // yarn: the ramp's ends are whole numbers
  std::vector<double> short_factors, long_factors;                 // longrope: of each rotated pair, within and beyond that context
  bool operator==(const RopeConfig&) const = default;
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  std::int64_t vocab_size = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;  // heads * head_dim need not be hidden
  std::int64_t ffn = 0;
  std::int64_t max_positions = 0;
  NormKind norm = NormKind::kRmsNorm;
  double norm_eps = 1e-5;
  NormPlacement norm_placement = NormPlacement::kBefore;
  Activation activation = Activation::kSwiGlu;
  PositionKind position = PositionKind::kRope;
  std::int64_t sliding_window = 0;   // tokens that a token of a sliding layer sees at most, itself among them; 0: no layer slides
  std::vector<bool> sliding_layers = {};  // whether each layer slides, where there is a window and not all of them do
  double attention_softcap = 0;      // scaled scores s become cap * tanh(s / cap); 0: they do not
  double logit_softcap = 0;          // and so the logits
  RopeConfig rope;           // meaningful with PositionKind::kRope
  bool qkv_bias = false;     // of the query, key and value projections
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;     // of every feed-forward projection
  QkNorm qk_norm = QkNorm::kNone;
  double clip_qkv = 0;  // queries, keys and values are bounded to -clip_qkv .. clip_qkv before the rotation (OLMo 0424); 0: not
  bool tie_embeddings = false;
  double residual_dropout = 0.0;   // after the attention and feed-forward outputs
  double embedding_dropout = 0.0;  // after the sum of embeddings
  double init_std = 0.02;          // standard deviation of initial weights
  std::shared_ptr<const Tuning> tuning = nullptr;  // which parameters train; null: all

  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  bool slides(std::int64_t layer) const {
    return sliding_window > 0 && (sliding_layers.empty() || sliding_layers.at(static_cast<std::size_t>(layer)));
  }
  // Dimensions of a head that are rotated; even.
  std::int64_t rotary_dim() const;
  // Tokens of the longest sequence: all positions, but any number with dynamic scaling, which adapts to them.
  std::int64_t longest_sequence() const;
  bool operator==(const ModelConfig&) const = default;
};

// Checks what the rest of the program relies on: positive sizes, kv_heads divides heads, an even rotated width, probabilities in
// [0, 1). Throws ConfigError; `where` (the JSON path or file of the model) begins the message.
void validate(const ModelConfig& config, std::string_view where);

// Reads the architecture from the keys of a Hugging Face config.json, in the spelling of transformers 4 (rope_theta, rope_scaling,
// torch_dtype) or 5 (rope_parameters, dtype). model_type: gpt2, llama (SmolLM among them), qwen2 (and 2.5), qwen3, mistral, olmo,
// olmo2, phi3.
//
// - A missing key takes the family's default in transformers; hidden size, layer, head and feed-forward counts must be there.
// - Dropout: embd_pdrop and resid_pdrop of GPT-2 and Phi-3 are honoured; missing keys are no dropout (transformers says 0.1 in
//   GPT-2: a trainer's default must not depend on a family). Dropout of attention probabilities does not exist here and is refused,
//   unless `dropout` is given: it then replaces every probability of the file (residual and embedding = dropout, attention = 0).
// - A sliding window that hides nothing in the longest sequence is none. Layers of Qwen slide from max_window_layers on, or as
//   layer_types says; in Mistral and Phi-3 all do.
// - attn_logit_softcapping and final_logit_softcapping bound scores and logits in every family, as Gemma 2 has them.
// - Unknown keys, and features this program does not have (mixture of experts, other activations, quantised weights), are refused
//   by name.
//
// `where` begins every message: "<where>.<key> = <value>: <why>; <remedy>". Throws ConfigError. The result is validated.
ModelConfig model_config_from_hf(const JsonValue& object, std::string_view where, std::optional<double> dropout = std::nullopt);
// The keys of a config.json that somebody else wrote, those of `own` (null: none) in the place of its own; without members that
// are unknown and null, false, [] or {}, unless they are `own`. What else may be wrong with them, model_config_from_hf says.
JsonValue hf_config_keys(JsonValue file, const JsonValue& own);
// Whether a key of a config.json changes nothing of what is computed ("transformers_version"), so that it is accepted and not read.
bool is_informational_hf_key(std::string_view key);
// model_config_from_hf from text (a config.json file's content).
ModelConfig model_config_from_hf_json(std::string_view json, std::string_view where, std::optional<double> dropout = std::nullopt);


}  // namespace trident
