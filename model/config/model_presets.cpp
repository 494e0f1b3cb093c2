#include "model/config/model_presets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/nearest_name.h"

namespace trident {

namespace {

struct Preset {
  std::string_view name;
  std::string_view json;
};

constexpr Preset kPresets[] = {
    // Radford et al. 2019: the four GPT-2 sizes.
    {"gpt2-124m",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12})"},
    {"gpt2-355m",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 1024, "n_layer": 24, "n_head": 16})"},
    {"gpt2-774m",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 1280, "n_layer": 36, "n_head": 20})"},
    {"gpt2-1.5b",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 1600, "n_layer": 48, "n_head": 25})"},
    // Brown et al. 2020, table 2.1, with dense attention in every layer (the paper alternates dense and banded).
    {"gpt3-175b",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048, "n_embd": 12288, "n_layer": 96, "n_head": 96})"},
    // Ours, for GPT-2's vocabulary, tied, so that the name counts all parameters. Layers divide by 4 and heads by 8, for layouts of
    // up to 4 pipeline stages and 8 tensor ranks.
    // 0.95M, nearly all of it the embedding: for smoke tests, not for learning anything.
    {"llama-1m",
     R"({"model_type": "llama", "vocab_size": 50257, "hidden_size": 16, "intermediate_size": 256, "num_hidden_layers": 8,
      "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "head_dim": 16, "tie_word_embeddings": true})"},
    // 14.4M.
    {"llama-15m",
     R"({"model_type": "llama", "vocab_size": 50257, "hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 8,
      "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "head_dim": 32, "tie_word_embeddings": true})"},
    // 61.1M.
    {"llama-60m",
     R"({"model_type": "llama", "vocab_size": 50257, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 12,
      "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "tie_word_embeddings": true})"},
    // Touvron et al. 2023 (arXiv 2307.09288) and the published configurations.
    {"llama2-7b",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0})"},
    {"llama2-13b",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
      "num_attention_heads": 40, "num_key_value_heads": 40, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0})"},
    {"llama2-70b",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
      "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0})"},
    // Grattafiori et al. 2024 (arXiv 2407.21783), table 3, and the published configurations.
    {"llama3-8b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0})"},
    {"llama3-70b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
      "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0})"},
    {"llama3.1-8b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}})"},
    {"llama3.1-70b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
      "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}})"},
    {"llama3.1-405b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 16384, "intermediate_size": 53248,
      "num_hidden_layers": 126,
      "num_attention_heads": 128, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}})"},
    {"llama3.2-1b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}, "head_dim": 64, "tie_word_embeddings": true})"},
    // Qwen2.5 (arXiv 2412.15115) and Qwen3 (arXiv 2505.09388), base models' configurations.
    {"qwen2.5-0.5b",
     R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
      "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000.0, "tie_word_embeddings": true})"},
    {"qwen2.5-1.5b",
     R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
      "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000.0, "tie_word_embeddings": true})"},
    {"qwen2.5-7b",
     R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
      "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000.0})"},
    {"qwen3-0.6b",
     R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
      "num_attention_heads": 16, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000.0, "head_dim": 128, "tie_word_embeddings": true})"},
    // Jiang et al. 2023 (arXiv 2310.06825); version 0.2, which has no sliding window.
    {"mistral-7b",
     R"({"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0,
      "sliding_window": null})"},
    // Groeneveld et al. 2024 (arXiv 2402.00838): layer norms without parameters.
    {"olmo-1b",
     R"({"model_type": "olmo", "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
      "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 2048, "rope_theta": 10000.0,
      "tie_word_embeddings": true})"},
    // OLMo team 2024 (arXiv 2501.00656): norms after the two parts of a block, queries and keys normalised over all heads.
    {"olmo2-1b",
     R"({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
      "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
      "rope_theta": 500000.0})"},
    // Ben Allal et al. 2025 (arXiv 2502.02737): of the Llama class.
    {"smollm2-135m",
     R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
      "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 100000.0, "tie_word_embeddings": true})"},
    // Abdin et al. 2024 (arXiv 2404.14219): the version for 4k tokens, whose window hides nothing from 2047.
    {"phi3-mini",
     R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "sliding_window": 2047})"},
};

// Names of published models that no rule of usual_name() makes a preset's.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"gpt2", "gpt2-124m"},        {"gpt-2", "gpt2-124m"},   {"gpt2-small", "gpt2-124m"},          {"gpt2-medium", "gpt2-355m"},
    {"gpt2-large", "gpt2-774m"},  {"gpt2-xl", "gpt2-1.5b"}, {"phi3-mini-4k-instruct", "phi3-mini"}, {"olmo2-0425-1b", "olmo2-1b"},
    {"mistral7b-v0.2", "mistral-7b"},
};

// The preset that is meant by a name as others write it: "meta-llama/Llama-2-7b-hf" is llama2-7b.
std::string usual_name(std::string_view given) {
  std::string name(given.substr(given.find('/') + 1));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name.starts_with("meta-")) name.erase(0, 5);
  for (const std::string_view end : {"-hf", "-base"})
    if (name.ends_with(end)) name.erase(name.size() - end.size());
  // The family's number stands apart: "llama-3.1-8b".
  const std::size_t dash = name.find('-');
  const bool is_number = dash + 1 < name.size() && std::isdigit(static_cast<unsigned char>(name[dash + 1])) != 0;
  if (is_number && name.find('-', dash + 1) != name.npos) name.erase(dash, 1);
  for (const auto& [alias, preset] : kAliases)
    if (name == alias) return std::string(preset);
  return name;
}

}  // namespace

std::vector<std::string_view> model_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

std::string_view model_preset_json(std::string_view name, std::string_view where) {
  const std::string usual = usual_name(name);
  for (const Preset& preset : kPresets)
    if (preset.name == name || preset.name == usual) return preset.json;
  std::string known;
  for (const Preset& preset : kPresets) known += fmt::format("{}{}", known.empty() ? "" : ", ", preset.name);
  const std::string_view near = likely_name(name, model_preset_names());
  throw ConfigError(fmt::format("{} = {}: no such model preset; {}known are {}", where, in_quotes(name),
                                near.empty() ? "" : fmt::format("did you mean {}? ", in_quotes(near)), known));
}

ModelConfig model_preset(std::string_view name, std::string_view where) {
  return model_config_from_hf_json(model_preset_json(name, where), where, 0.0);
}

}  // namespace trident
