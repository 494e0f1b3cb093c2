#include "planner/study/study_keys.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/nearest_name.h"
#include "train/config/option_check.h"
#include "train/config/option_table.h"
#include "train/config/resolve_model.h"

namespace trident {
namespace {

constexpr std::string_view kModel = "model.";

// A name and what it stands for. These count more than the ends of paths: "layers" are the model's, not parallel.layers.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kShort = {{{"tp", "parallel.tensor"},
                                                                                   {"pp", "parallel.pipeline"},
                                                                                   {"dp", kReplicasKey},
                                                                                   {"cp", "parallel.context"},
                                                                                   {"vpp", "parallel.virtual_stages"},
                                                                                   {"sp", "parallel.sequence_parallel"},
                                                                                   {"seq", "batch.sequence"},
                                                                                   {"recompute", "recompute.policy"},
                                                                                   {"layers", "model.num_hidden_layers"},
                                                                                   {"hidden", "model.hidden_size"},
                                                                                   {"ffn", "model.intermediate_size"},
                                                                                   {"heads", "model.num_attention_heads"},
                                                                                   {"kv_heads", "model.num_key_value_heads"},
                                                                                   {"vocab", "model.vocab_size"}}};

// Keys of config.json that say how large a model is; GPT-2's own spelling second.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kModelKeys = {{{"num_hidden_layers", "n_layer"},
                                                                                      {"hidden_size", "n_embd"},
                                                                                      {"intermediate_size", "n_inner"},
                                                                                      {"num_attention_heads", "n_head"},
                                                                                      {"max_position_embeddings", "n_positions"},
                                                                                      {"num_key_value_heads", ""},
                                                                                      {"vocab_size", ""},
                                                                                      {"head_dim", ""},
                                                                                      {"tie_word_embeddings", ""}}};

[[noreturn]] void refuse_unknown(std::string_view key, std::string_view where) {
  const std::string begin = fmt::format("{}: unknown key {}", where, in_quotes(key));
  std::vector<std::string_view> of_block;
  for (const Option& option : option_table())
    if (block_of(option) == key) of_block.push_back(option.path);
  if (!of_block.empty()) throw ConfigError(fmt::format("{}: it is a block; vary one of {}", begin, fmt::join(of_block, ", ")));
  if (const std::string known = name_here(key); !known.empty()) throw ConfigError(begin + known);
  std::vector<std::string_view> names{kGpusKey};
  for (const auto& [name, path] : kShort) names.push_back(name);
  for (const Option& option : option_table()) names.push_back(key_of(option));
  for (const auto& [name, of_gpt2] : kModelKeys) names.push_back(name);
  const std::string_view near = likely_name(key, names);
  if (!near.empty()) throw ConfigError(fmt::format("{}; did you mean {}?", begin, near));
  const std::string hint = did_you_mean(key);
  throw ConfigError(begin + (hint.empty() ? "; docs/studies.md has short names, trident help the keys of a configuration" : hint));
}

[[noreturn]] void refuse_of_model(std::string_view key, const JsonValue& keys, std::string_view where) {
  std::vector<std::string_view> names;
  for (const auto& [name, of_gpt2] : kModelKeys) names.push_back(name);
  for (const JsonMember& member : keys.members()) names.push_back(member.key);
  const std::string_view near = likely_name(key, names);
  const JsonValue* const type = keys.find("model_type");
  throw ConfigError(fmt::format("{}: unknown key {}{}; models of model_type {} do not have it{}", where, kModel, key,
                                type == nullptr ? "" : to_json_text(*type),
                                near.empty() ? "" : fmt::format("; did you mean {}{}?", kModel, near)));
}

}  // namespace

std::string varied_path(std::string_view key, std::string_view where) {
  if (key == kGpusKey || key == "parallel" || find_option(key) != nullptr) return std::string(key);
  if (is_model_key(key)) return std::string(key);
  for (const auto& [name, path] : kShort)
    if (key == name) return std::string(path);
  std::vector<std::string_view> ends_so;
  for (const Option& option : option_table())
    if (key_of(option) == key && !option.reserved) ends_so.push_back(option.path);
  if (ends_so.size() == 1) return std::string(ends_so.front());
  if (ends_so.size() > 1)
    throw ConfigError(fmt::format("{}: {} may be {}; write the whole path", where, in_quotes(key), fmt::join(ends_so, ", ")));
  for (const auto& [name, of_gpt2] : kModelKeys)
    if (key == name || (!of_gpt2.empty() && key == of_gpt2)) return std::string(kModel) + std::string(key);
  refuse_unknown(key, where);
}

std::string_view short_key(std::string_view path) {
  for (const auto& [name, means] : kShort)
    if (path == means) return name;
  const std::string_view last = path.substr(path.rfind('.') + 1);
  try {
    return varied_path(last, "") == path ? last : path;
  } catch (const ConfigError&) {  // ambiguous, or a key of few models
    return path;
  }
}

bool counts_ranks(std::string_view path) { return path == kGpusKey || path == kReplicasKey; }

bool is_model_key(std::string_view path) { return path.starts_with(kModel) && find_option(path) == nullptr; }

std::string model_path(const TrainConfig& config, const std::string& path, std::string_view where) {
  const JsonValue keys = model_keys(config);
  std::string_view key = std::string_view(path).substr(kModel.size());
  for (const auto& [name, of_gpt2] : kModelKeys) {
    if (of_gpt2.empty()) continue;
    if (key == name && keys.find(of_gpt2) != nullptr) key = of_gpt2;
    else if (key == of_gpt2 && keys.find(name) != nullptr) key = name;
  }
  // Null is what absence is: a model with this key as null is refused only where the key is unknown.
  if (const std::string_view first = key.substr(0, key.find('.')); keys.find(first) == nullptr) {
    TrainConfig with_key = config;
    with_key.model.preset.reset(), with_key.model.hf_config.reset();
    with_key.model.keys = keys;
    with_key.model.keys.set(first, JsonValue());
    try {
      resolve_model(with_key);
    } catch (const ConfigError&) {
      refuse_of_model(key, keys, where);
    }
  }
  return std::string(kModel) + std::string(key);
}

std::vector<std::string> spell_model_out(const TrainConfig& config) {
  std::vector<std::string> settings;
  if (!config.model.preset && !config.model.hf_config) return settings;
  settings = {"model.preset=null", "model.hf_config=null"};
  const JsonValue keys = model_keys(config);
  for (const JsonMember& member : keys.members())
    settings.push_back(fmt::format("{}{}={}", kModel, member.key, to_json_text(member.value)));
  return settings;
}

}  // namespace trident
