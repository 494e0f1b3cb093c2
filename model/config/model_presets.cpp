#include "model/config/model_presets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/check.h"
#include "core/nearest_name.h"

namespace trident {

namespace {

// The lengths that a config.json gives, and its other keys as text. A GPT-2's has no intermediate and kv_heads.
struct Preset {
  std::string_view name, family;
  int vocabulary, hidden, intermediate, layers, heads, kv_heads, positions;
  std::string_view others;
};

constexpr std::string_view kLlama2 = R"("rms_norm_eps": 1e-5, "rope_theta": 10000.0)";
constexpr std::string_view kLlama3 = R"("rms_norm_eps": 1e-5, "rope_theta": 500000.0)";
constexpr std::string_view kLlama31 =
    R"("rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, )"
    R"("low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";
constexpr std::string_view kQwen = R"("rms_norm_eps": 1e-6, "rope_theta": 1000000.0)";
constexpr std::string_view kQwenTied = R"("rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": true)";

constexpr Preset kPresets[] = {
    // Radford et al. 2019: the four GPT-2 sizes.
    {"gpt2-124m", "gpt2", 50257, 768, 0, 12, 12, 0, 1024, ""},
    {"gpt2-355m", "gpt2", 50257, 1024, 0, 24, 16, 0, 1024, ""},
    {"gpt2-774m", "gpt2", 50257, 1280, 0, 36, 20, 0, 1024, ""},
    {"gpt2-1.5b", "gpt2", 50257, 1600, 0, 48, 25, 0, 1024, ""},
    // Brown et al. 2020, table 2.1, with dense attention in every layer (the paper alternates dense and banded).
    {"gpt3-175b", "gpt2", 50257, 12288, 0, 96, 96, 0, 2048, ""},
    // Ours, for GPT-2's vocabulary, tied, so that the name counts all parameters. Layers divide by 4 and heads by 8, for layouts of
    // up to 4 pipeline stages and 8 tensor ranks.
    // 0.95M, nearly all of it the embedding: for smoke tests, not for learning anything.
    {"llama-1m", "llama", 50257, 16, 256, 8, 8, 4, 2048,
     R"("rms_norm_eps": 1e-5, "rope_theta": 10000.0, "head_dim": 16, "tie_word_embeddings": true)"},
    // 14.4M.
    {"llama-15m", "llama", 50257, 192, 768, 8, 8, 4, 2048,
     R"("rms_norm_eps": 1e-5, "rope_theta": 10000.0, "head_dim": 32, "tie_word_embeddings": true)"},
    // 61.1M.
    {"llama-60m", "llama", 50257, 512, 1408, 12, 8, 4, 2048,
     R"("rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true)"},
    // Touvron et al. 2023 (arXiv 2307.09288) and the published configurations.
    {"llama2-7b", "llama", 32000, 4096, 11008, 32, 32, 32, 4096, kLlama2},
    {"llama2-13b", "llama", 32000, 5120, 13824, 40, 40, 40, 4096, kLlama2},
    {"llama2-70b", "llama", 32000, 8192, 28672, 80, 64, 8, 4096, kLlama2},
    // Grattafiori et al. 2024 (arXiv 2407.21783), table 3, and the published configurations.
    {"llama3-8b", "llama", 128256, 4096, 14336, 32, 32, 8, 8192, kLlama3},
    {"llama3-70b", "llama", 128256, 8192, 28672, 80, 64, 8, 8192, kLlama3},
    {"llama3.1-8b", "llama", 128256, 4096, 14336, 32, 32, 8, 131072, kLlama31},
    {"llama3.1-70b", "llama", 128256, 8192, 28672, 80, 64, 8, 131072, kLlama31},
    {"llama3.1-405b", "llama", 128256, 16384, 53248, 126, 128, 8, 131072, kLlama31},
    {"llama3.2-1b", "llama", 128256, 2048, 8192, 16, 32, 8, 131072,
     R"("rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, )"
     R"("low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, )"
     R"("head_dim": 64, "tie_word_embeddings": true)"},
    // Qwen2.5 (arXiv 2412.15115) and Qwen3 (arXiv 2505.09388), base models' configurations.
    {"qwen2.5-0.5b", "qwen2", 151936, 896, 4864, 24, 14, 2, 32768, kQwenTied},
    {"qwen2.5-1.5b", "qwen2", 151936, 1536, 8960, 28, 12, 2, 131072, kQwenTied},
    {"qwen2.5-7b", "qwen2", 152064, 3584, 18944, 28, 28, 4, 131072, kQwen},
    {"qwen3-0.6b", "qwen3", 151936, 1024, 3072, 28, 16, 8, 32768,
     R"("rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "head_dim": 128, "tie_word_embeddings": true)"},
    // Jiang et al. 2023 (arXiv 2310.06825); version 0.2, which has no sliding window.
    {"mistral-7b", "mistral", 32000, 4096, 14336, 32, 32, 8, 32768,
     R"("rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": null)"},
    // Groeneveld et al. 2024 (arXiv 2402.00838): layer norms without parameters.
    {"olmo-1b", "olmo", 50304, 2048, 8192, 16, 16, 16, 2048, R"("rope_theta": 10000.0, "tie_word_embeddings": true)"},
    // OLMo team 2024 (arXiv 2501.00656): norms after the two parts of a block, queries and keys normalised over all heads.
    {"olmo2-1b", "olmo2", 100352, 2048, 8192, 16, 16, 16, 4096, R"("rms_norm_eps": 1e-6, "rope_theta": 500000.0)"},
    // Ben Allal et al. 2025 (arXiv 2502.02737): of the Llama class.
    {"smollm2-135m", "llama", 49152, 576, 1536, 30, 9, 3, 8192,
     R"("rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": true)"},
    // Abdin et al. 2024 (arXiv 2404.14219): the version for 4k tokens, whose window hides nothing from 2047.
    {"phi3-mini", "phi3", 32064, 3072, 8192, 32, 32, 32, 4096,
     R"("rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 2047)"},
};

// As a published config.json has it.
std::string to_json(const Preset& p) {
  if (p.family == "gpt2")
    return fmt::format(
        R"({{"model_type": "gpt2", "vocab_size": {}, "n_positions": {}, "n_embd": {}, "n_layer": {}, "n_head": {}}})", p.vocabulary,
        p.positions, p.hidden, p.layers, p.heads);
  return fmt::format(
      R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": {}, )"
      R"("num_attention_heads": {}, "num_key_value_heads": {}, "max_position_embeddings": {}, {}}})",
      p.family, p.vocabulary, p.hidden, p.intermediate, p.layers, p.heads, p.kv_heads, p.positions, p.others);
}

// Names of published models that no rule of usual_name() makes a preset's.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"gpt2", "gpt2-124m"},         {"gpt-2", "gpt2-124m"},        {"gpt2-small", "gpt2-124m"},
    {"gpt2-medium", "gpt2-355m"},  {"gpt2-large", "gpt2-774m"},   {"gpt2-xl", "gpt2-1.5b"},
    {"phi3-mini-4k-instruct", "phi3-mini"}, {"olmo2-0425-1b", "olmo2-1b"}, {"mistral7b-v0.2", "mistral-7b"},
    {"d12", "gpt2-124m"},          {"d24", "gpt2-355m"},          {"d36", "gpt2-774m"},
    {"d48", "gpt2-1.5b"},  // of llm.c
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

// "; did you mean "llama3.1-405b"?": the presets of this size and family, else those that begin so, else the one that is spelled
// so.
std::string near_presets(std::string_view name) {
  const auto family_of = [](std::string_view of) {
    return of.substr(0, std::min(of.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), of.size()));
  };
  for (const std::string_view tuned : {"-instruct", "-chat"})  // of the same shape, with weights that no preset has
    if (name.ends_with(tuned)) name.remove_suffix(tuned.size());
  const std::string_view family = family_of(name), size = name.substr(name.rfind('-') + 1);
  std::vector<std::string> same_size, longer;
  for (const std::string_view preset : model_preset_names()) {
    const bool may_be = family.empty() || family == family_of(preset);
    if (may_be && !size.empty() && preset.substr(preset.rfind('-') + 1) == size) same_size.push_back(in_quotes(preset));
    if (!name.empty() && preset.starts_with(name)) longer.push_back(in_quotes(preset));
  }
  const auto& near = same_size.empty() ? longer : same_size;
  return near.empty() ? name_hint(name, model_preset_names()) : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

}  // namespace

std::vector<std::string_view> model_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

std::string model_preset_json(std::string_view name, std::string_view where) {
  const std::string usual = usual_name(name);
  for (const Preset& preset : kPresets)
    if (preset.name == name || preset.name == usual) return to_json(preset);
  throw ConfigError(fmt::format("{} = {}: no such model preset{}; known are {}; model.hf_config names the config.json of any other",
                                where, in_quotes(name), near_presets(usual), fmt::join(model_preset_names(), ", ")));
}

ModelConfig model_preset(std::string_view name, std::string_view where) {
  return model_config_from_hf_json(model_preset_json(name, where), where, 0.0);
}

}  // namespace trident
