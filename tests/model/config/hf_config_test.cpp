#include <gtest/gtest.h>

#include <cstdint>

#include "core/file_io.h"
#include "model/config/hf_config_writer.h"
#include "model/config/model_config.h"
#include "model/config/model_stats.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

ModelConfig golden(const std::string& name) {
  const std::string path = std::string(TRIDENT_MODEL_GOLDENS "/") + name + "/config.json";
  return model_config_from_hf_json(read_file(path), path);
}

// Returns the keys that every configuration of Llama's kind needs, and `more` of them.
ModelConfig tiny(const std::string& type, const std::string& more, std::optional<double> dropout = std::nullopt) {
  return model_config_from_hf_json(
      R"({"model_type": ")" + type +
          R"(", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4)" +
          (more.empty() ? "" : ", " + more) + "}",
      "model", dropout);
}

ModelConfig tiny_gpt2(const std::string& more, std::optional<double> dropout = std::nullopt) {
  return model_config_from_hf_json(
      R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4)" + (more.empty() ? "" : ", " + more) + "}", "model",
      dropout);
}

TEST(HfConfig, ReadsWhatTransformersWrites) {
  const ModelConfig gpt2 = golden("gpt2");
  EXPECT_EQ(gpt2.family, ModelFamily::kGpt2);
  EXPECT_EQ(gpt2.ffn, 64);
  EXPECT_EQ(gpt2.max_positions, 32);
  EXPECT_EQ(gpt2.norm, NormKind::kLayerNorm);
  EXPECT_EQ(gpt2.activation, Activation::kGeluTanh);
  EXPECT_EQ(gpt2.position, PositionKind::kLearned);
  EXPECT_TRUE(gpt2.qkv_bias && gpt2.output_bias && gpt2.mlp_bias && gpt2.tie_embeddings);

  const ModelConfig llama = golden("llama");
  EXPECT_EQ(llama.kv_heads, 2);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.norm_eps, 1e-5);
  EXPECT_FALSE(llama.tie_embeddings || llama.qkv_bias || llama.mlp_bias);
  EXPECT_EQ(llama.qk_norm, QkNorm::kNone);

  const ModelConfig scaled = golden("llama3_rope");
  EXPECT_EQ(scaled.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(scaled.rope.original_max_positions, 16);
  EXPECT_TRUE(scaled.qkv_bias && scaled.output_bias && scaled.mlp_bias && scaled.tie_embeddings);

  const ModelConfig qwen2 = golden("qwen2");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias);
  EXPECT_EQ(qwen2.rope.theta, 1e6);

  const ModelConfig qwen3 = golden("qwen3");
  EXPECT_EQ(qwen3.qk_norm, QkNorm::kPerHead);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.query_width(), 64);
  EXPECT_EQ(qwen3.rope.scaling, RopeScaling::kYarn);

  EXPECT_EQ(golden("mistral").family, ModelFamily::kMistral);
}

TEST(HfConfig, MissingKeysHaveTheirDefaults) {
  const ModelConfig llama = tiny("llama", "");
  EXPECT_EQ(llama.vocab_size, 32000);
  EXPECT_EQ(llama.kv_heads, 4) << "as many as heads";
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope.theta, 10000.0);
  EXPECT_EQ(llama.init_std, 0.02);
  EXPECT_FALSE(llama.tie_embeddings);

  const ModelConfig qwen3 = tiny("qwen3", R"("num_key_value_heads": 2)");
  EXPECT_EQ(qwen3.head_dim, 128) << "Qwen3's default, not hidden / heads";
  EXPECT_EQ(qwen3.max_positions, 32768);
  EXPECT_EQ(tiny("qwen3", R"("num_key_value_heads": null)").kv_heads, 4);
  const std::string wide = R"("hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 64)";
  EXPECT_EQ(model_config_from_hf_json(R"({"model_type": "qwen2", )" + wide + "}", "model").kv_heads, 32);
  EXPECT_EQ(model_config_from_hf_json(R"({"model_type": "mistral", "sliding_window": null, )" + wide + "}", "model").kv_heads, 8);
  EXPECT_EQ(tiny("mistral", R"("num_key_value_heads": 4, "sliding_window": null)").max_positions, 131072);
  EXPECT_EQ(tiny("olmo", "").norm, NormKind::kPlainLayerNorm);
  EXPECT_EQ(tiny("olmo", R"("clip_qkv": null)").clip_qkv, 0);
  EXPECT_EQ(tiny("olmo", R"("clip_qkv": 8)").clip_qkv, 8);

  const ModelConfig gpt2 = tiny_gpt2("");
  EXPECT_EQ(gpt2.vocab_size, 50257);
  EXPECT_EQ(gpt2.max_positions, 1024);
  EXPECT_EQ(gpt2.ffn, 256);
  EXPECT_EQ(gpt2.norm_eps, 1e-5);
  EXPECT_TRUE(gpt2.tie_embeddings);
}

TEST(HfConfig, Gpt2AlsoTakesTheStandardNames) {
  const ModelConfig config = model_config_from_hf_json(
      R"({"model_type": "gpt2", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
          "max_position_embeddings": 99})",
      "model");
  EXPECT_EQ(config.max_positions, 99);
  EXPECT_EQ(num_parameters(config), num_parameters(tiny_gpt2(R"("n_positions": 99)")));
  EXPECT_EQ(tiny_gpt2(R"("n_inner": null)").ffn, 256);
}

TEST(HfConfig, OldAndNewRopeSpellingsAgree) {
  const std::string keys =
      R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512)";
  const ModelConfig old_style = tiny("llama", R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", )" + keys + "}");
  const std::string inside = R"({"rope_type": "llama3", "rope_theta": 500000.0, )" + keys + "}";
  EXPECT_EQ(tiny("llama", R"("rope_parameters": )" + inside), old_style);
  EXPECT_EQ(tiny("llama", R"("rope_theta": 1.5, "rope_parameters": )" + inside), old_style) << "the value inside wins";
  EXPECT_EQ(tiny("llama", R"("rope_parameters": {"full_attention": )" + inside + "}"), old_style) << "one object per kind of layer";
  EXPECT_EQ(tiny("llama", R"("rope_scaling": )" + inside + R"(, "rope_parameters": )" + inside), old_style)
      << "both spellings, equal";
  EXPECT_EQ(old_style.rope.theta, 500000.0);
  EXPECT_EQ(old_style.rope.factor, 8.0);
}

TEST(HfConfig, RopeScalingsAreRead) {
  EXPECT_EQ(tiny("llama", R"("rope_scaling": null)").rope, RopeConfig{});
  EXPECT_EQ(tiny("llama", R"("rope_parameters": {"rope_type": "default", "rope_theta": 10000.0})").rope, RopeConfig{});
  const ModelConfig dynamic = tiny("llama", R"("max_position_embeddings": 64,
      "rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 32})");
  EXPECT_EQ(dynamic.rope.scaling, RopeScaling::kDynamic);
  EXPECT_EQ(dynamic.rope.original_max_positions, 64) << "as transformers reads it";
  EXPECT_GT(dynamic.longest_sequence(), 64);
  const RopeConfig linear = tiny("llama", R"("rope_scaling": {"type": "linear", "factor": 2.0})").rope;
  EXPECT_EQ(linear.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.factor, 2.0);
  const RopeConfig yarn =
      tiny("llama", R"("rope_scaling": {"type": "yarn", "original_max_position_embeddings": 256, "beta_fast": 20,
                                           "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": false})")
          .rope;
  EXPECT_EQ(yarn.factor, 8.0) << "max_position_embeddings / original";
  EXPECT_EQ(yarn.beta_fast, 20.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_EQ(yarn.mscale_all_dim, 0.5);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(tiny("llama", R"("rope_scaling": {"type": "yarn", "factor": 4.0})").rope.original_max_positions, 2048);
  EXPECT_EQ(tiny("llama", R"("original_max_position_embeddings": 64, "rope_scaling": {"type": "yarn", "factor": 4.0,
                             "original_max_position_embeddings": 128})")
                .rope.original_max_positions,
            64)
      << "beside the object wins";
}

TEST(HfConfig, DropoutIsWhatTheFileOrTheUserSays) {
  EXPECT_EQ(tiny_gpt2("").residual_dropout, 0.0) << "a missing key is no dropout";
  const ModelConfig file = tiny_gpt2(R"("resid_pdrop": 0.1, "embd_pdrop": 0.2, "attn_pdrop": 0)");
  EXPECT_EQ(file.residual_dropout, 0.1);
  EXPECT_EQ(file.embedding_dropout, 0.2);
  const ModelConfig user = tiny_gpt2(R"("resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1)", 0.05);
  EXPECT_EQ(user.residual_dropout, 0.05);
  EXPECT_EQ(user.embedding_dropout, 0.05);
  EXPECT_EQ(tiny("llama", "", 0.25).residual_dropout, 0.25);
  EXPECT_EQ(tiny("llama", R"("attention_dropout": 0.1)", 0.0).residual_dropout, 0.0);
}

// A window counts if it hides something in the longest sequence.
TEST(HfConfig, SlidingWindowsAreRead) {
  const auto window = [](const std::string& family, const std::string& more) {
    return tiny(family, R"("num_key_value_heads": 2, )" + more).sliding_window;
  };
  EXPECT_EQ(window("mistral", R"("max_position_embeddings": 8192)"), 4096) << "a missing key";
  EXPECT_EQ(window("mistral", R"("max_position_embeddings": 8192, "sliding_window": null)"), 0);
  EXPECT_EQ(window("mistral", R"("max_position_embeddings": 4096)"), 0) << "positions end within it";
  EXPECT_EQ(window("mistral", R"("max_position_embeddings": 128, "sliding_window": 128)"), 0);
  EXPECT_EQ(window("mistral", R"("max_position_embeddings": 128, "sliding_window": 127)"), 127);
  EXPECT_EQ(window("mistral", R"("max_position_embeddings": 128, "sliding_window": 512,
                                 "rope_scaling": {"rope_type": "dynamic", "factor": 2.0})"), 512)
      << "dynamic scaling takes longer sequences than there are positions";
  EXPECT_EQ(window("phi3", R"("max_position_embeddings": 4096)"), 0) << "a missing key is none in Phi-3";
  EXPECT_EQ(window("phi3", R"("max_position_embeddings": 4096, "sliding_window": 2047)"), 2047);
  EXPECT_EQ(window("qwen2", R"("use_sliding_window": false, "sliding_window": 16)"), 0);
  EXPECT_EQ(window("qwen2", R"("use_sliding_window": true, "sliding_window": 16)"), 0)
      << "3 layers are below max_window_layers = 28: none slides";
  EXPECT_EQ(window("qwen2", R"("use_sliding_window": true, "sliding_window": 16, "max_window_layers": 2)"), 16);
  const std::string all = R"("use_sliding_window": true, "sliding_window": 16, "max_window_layers": 0, "layer_types": )";
  EXPECT_EQ(window("qwen3", all + R"(["full_attention", "full_attention", "full_attention"])"), 0);
  EXPECT_EQ(window("qwen3", all + R"(["full_attention", "full_attention", "sliding_attention"])"), 16);
}

TEST(HfConfig, LayersSlideFromOneOnOrByAList) {
  const auto kinds = [](const std::string& family, const std::string& more) {
    const ModelConfig model =
        tiny(family, R"("num_key_value_heads": 2, "max_position_embeddings": 64, "sliding_window": 16)" + more);
    std::string text;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) text += model.slides(layer) ? 's' : 'f';
    return text;
  };
  EXPECT_EQ(kinds("mistral", ""), "sss");
  EXPECT_EQ(kinds("phi3", R"(, "layer_types": ["full_attention", "full_attention", "full_attention"])"), "sss")
      << "these families' window is everywhere";
  const std::string on = R"(, "use_sliding_window": true)";
  EXPECT_EQ(kinds("qwen2", on), "fff") << "max_window_layers = 28";
  EXPECT_EQ(kinds("qwen2", on + R"(, "max_window_layers": 0)"), "sss");
  EXPECT_EQ(kinds("qwen3", on + R"(, "max_window_layers": 2)"), "ffs");
  const std::string list =
      R"(, "max_window_layers": 0, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])";
  EXPECT_EQ(kinds("qwen3", on + list), "sfs") << "a list counts, not max_window_layers";
  EXPECT_EQ(kinds("qwen3", list), "fff") << "the window is off";
  const ModelConfig none = tiny("qwen3", R"("num_key_value_heads": 2, "sliding_window": null)" + on + list);
  EXPECT_TRUE(none.sliding_layers.empty()) << "an export would have layers that slide without a window";
}

TEST(HfConfig, BoundsOfScoresAndLogitsAreReadInEveryFamily) {
  for (const char* family : {"llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3"}) {
    const ModelConfig model =
        tiny(family, R"("num_key_value_heads": 2, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30)");
    EXPECT_EQ(model.attention_softcap, 50) << family;
    EXPECT_EQ(model.logit_softcap, 30) << family;
    const ModelConfig none =
        tiny(family, R"("num_key_value_heads": 2, "attn_logit_softcapping": null, "final_logit_softcapping": 0)");
    EXPECT_EQ(none.attention_softcap + none.logit_softcap, 0) << family;
  }
}

TEST(HfConfig, Olmo2IsRead) {
  const ModelConfig olmo2 = tiny("olmo2", "");
  EXPECT_EQ(olmo2.norm, NormKind::kRmsNormRoundedOnce);
  EXPECT_EQ(olmo2.norm_placement, NormPlacement::kAfter);
  EXPECT_EQ(olmo2.qk_norm, QkNorm::kFullWidth);
  EXPECT_EQ(olmo2.norm_eps, 1e-5);
  EXPECT_EQ(olmo2.vocab_size, 50304);
  EXPECT_EQ(olmo2.kv_heads, 4);
  EXPECT_FALSE(olmo2.qkv_bias || olmo2.output_bias || olmo2.tie_embeddings);
  EXPECT_TRUE(tiny("olmo2", R"("attention_bias": true)").qkv_bias);
}

TEST(HfConfig, Phi3IsRead) {
  const ModelConfig phi3 = tiny("phi3", "");
  EXPECT_EQ(phi3.vocab_size, 32064);
  EXPECT_EQ(phi3.max_positions, 4096);
  EXPECT_EQ(phi3.norm_eps, 1e-5);
  EXPECT_EQ(phi3.norm_placement, NormPlacement::kBefore);
  EXPECT_EQ(phi3.rope, RopeConfig{}) << "4096 trained positions say nothing without a scaling";
  EXPECT_EQ(tiny("phi3", R"("resid_pdrop": 0.1)").residual_dropout, 0.1);
  const std::string sizes = R"("partial_rotary_factor": 0.75, "max_position_embeddings": 131072, )";
  const std::string lists = R"("short_factor": [1, 1, 1, 1, 1, 1.5], "long_factor": [1, 2, 3, 4, 5, 6.5]})";
  const ModelConfig longrope =
      tiny("phi3", sizes + R"("original_max_position_embeddings": 4096, "rope_scaling": {"type": "longrope", )" + lists);
  EXPECT_EQ(longrope.rotary_dim(), 12);
  EXPECT_EQ(longrope.rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(longrope.rope.original_max_positions, 4096);
  EXPECT_EQ(longrope.rope.factor, 32.0);
  EXPECT_EQ(longrope.rope.short_factors.back(), 1.5);
  EXPECT_EQ(longrope.rope.long_factors.back(), 6.5);
  for (const std::string type : {"su", "yarn"})
    EXPECT_EQ(tiny("phi3", sizes + R"("rope_scaling": {"type": ")" + type + "\", " + lists), longrope)
        << "names of the first files";
  EXPECT_EQ(tiny("phi3", R"("max_position_embeddings": 131072, "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0,
                            "partial_rotary_factor": 0.75, "original_max_position_embeddings": 4096, )" +
                             lists),
            longrope)
      << "transformers 5";
}

// One model of each family, as transformers 4 and 5 spell it.
TEST(HfConfig, DialectsAgree) {
  const std::string old_keys =
      R"("torch_dtype": "bfloat16", "rope_theta": 5e5, "rope_scaling": null, "transformers_version": "4.46.0")";
  const std::string new_keys =
      R"("dtype": "bfloat16", "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}, "transformers_version": "5.23.0")";
  for (const std::string family : {"llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3"}) {
    const std::string kv = R"("num_key_value_heads": 2, )";
    EXPECT_EQ(tiny(family, kv + old_keys), tiny(family, kv + new_keys)) << family;
    EXPECT_EQ(tiny(family, kv + old_keys).rope.theta, 5e5) << family;
  }
}

TEST(HfConfig, InformationalKeysAreAccepted) {
  const std::string keys =
      R"("architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "dtype": "float32", "use_cache": true,
      "transformers_version": "4.40.0", "bos_token_id": 1, "eos_token_id": [1, 2], "pad_token_id": null, "pretraining_tp": 2,
      "_name_or_path": "x", "layer_types": ["full_attention", "full_attention", "full_attention"])";
  EXPECT_EQ(tiny("llama", keys), tiny("llama", ""));
  EXPECT_EQ(tiny_gpt2(R"("summary_type": "cls_index", "summary_first_dropout": 0.1, "n_ctx": 1024, "reorder_and_upcast_attn": true,
                         "task_specific_params": {"text-generation": {"max_length": 50}}, "architectures": ["GPT2LMHeadModel"])"),
            tiny_gpt2(""));
}

// Programs around transformers write these into its files.
TEST(HfConfig, KeysOfOtherToolsAreAccepted) {
  const std::string keys =
      R"("unsloth_fixed": true, "unsloth_version": "2026.3.3", "max_sequence_length": 2048, "_flash_attn_2_enabled": true,
      "loss_type": "ForCausalLM", "use_flash_attn": true, "add_bos_token": true, "model_max_length": 4096, "tokenizer_name": "x",
      "attn_implementation": "sdpa", "_attn_implementation_internal": "eager", "unk_token_id": 0, "min_p": 0.1,
      "max_new_tokens": 20, "padding_side": "left", "bf16": true, "_pre_quantization_dtype": "bfloat16", "model_name": "y")";
  EXPECT_EQ(tiny("llama", keys), tiny("llama", ""));
  EXPECT_EQ(tiny_gpt2(keys), tiny_gpt2(""));
}

TEST(HfConfig, UnknownKeysOfAFileThatAreSwitchedOffAreLeftOut) {
  const std::string sizes =
      R"("model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4)";
  const auto kept = [&](const std::string& more, const std::string& own) {
    const JsonValue keys = hf_config_keys(parse_json("{" + sizes + ", " + more + "}", "file"), parse_json(own, "own"));
    return to_json_text(keys).substr(to_json_text(parse_json("{" + sizes + "}", "file")).size() - 1);
  };
  const struct {
    std::string file, own, left;
  } cases[] = {
      {R"("freeze": null, "use_sliding_window": false, "moe_layers": [], "quant": {})", "null", "}"},
      {R"("num_key_value_heads": null, "tie_word_embeddings": false)", "null",
       R"(, "num_key_value_heads": null, "tie_word_embeddings": false})"},
      {R"("ep_size": 1, "qk_norm": true, "name": "", "list": [0])", "null",
       R"(, "ep_size": 1, "qk_norm": true, "name": "", "list": [0]})"},
      {R"("rope_scaling": {"type": "linear", "factor": 2.0, "extra": null})", "null",
       R"(, "rope_scaling": {"type": "linear", "factor": 2.0}})"},
      // Keys that the user wrote stay, and are refused later.
      {R"("freeze": null, "drop": false)", R"({"freeze": null, "rope_scaling": {"typo": false}})",
       R"(, "freeze": null, "rope_scaling": {"typo": false}})"},
      {R"("freeze": null, "hidden_act": "relu")", R"({"hidden_act": "silu"})", R"(, "hidden_act": "silu"})"},
      // The list of layers follows the user's number of them, which is 3 in the file, where it says how.
      {R"("layer_types": ["full_attention", "full_attention"])", R"({"num_hidden_layers": 3})",
       R"(, "layer_types": ["full_attention", "full_attention", "full_attention"]})"},
      {R"("layer_types": ["a", "b", "c", "d"])", R"({"num_hidden_layers": 3})", R"(, "layer_types": ["a", "b", "c"]})"},
      {R"("layer_types": ["a", "b"])", R"({"num_hidden_layers": 3})", R"(, "layer_types": ["a", "b"]})"},
      {R"("layer_types": ["a", "a"])", R"({"layer_types": ["a"], "num_hidden_layers": 3})", R"(, "layer_types": ["a"]})"},
  };
  for (const auto& [file, own, left] : cases) {
    std::string text = kept(file, own), wanted = left;
    for (std::string* of : {&text, &wanted}) std::erase(*of, ' ');
    EXPECT_EQ(text, wanted) << file;
  }
}

// config.json as it is written, read again: the same model, for every family and for values far from the usual.

const char* const kFamilies[] = {"gpt2",  "llama",   "llama3", "smollm", "qwen2", "qwen2.5",
                                 "qwen3", "mistral", "olmo",   "olmo2",  "phi3",    "olmo_clipped", "llama_dynamic",
                                 "mistral_windowed", "qwen2_windowed", "qwen3_mixed", "llama_softcapped"};

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
    if (!model.sliding_layers.empty()) model.sliding_layers.resize(7, true);
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
