#include "train/config/resolve_model.h"

#include <fmt/format.h>

#include <cstdint>

#include "core/check.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "model/config/model_presets.h"

namespace trident {
namespace {

constexpr std::int64_t kGpt2Tokens = 50257, kFilledUp = 50304;  // the next multiple of 128

// A file that a key of the configuration names; its message names the key too.
std::string named_file(const std::string& path, std::string_view key) {
  try {
    return read_file(path);
  } catch (const DataError& error) {
    throw ConfigError(fmt::format("{} = {}", key, error.what()));
  }
}

// The keys, and for messages where they are.
std::pair<JsonValue, std::string> keys_of(const ModelSource& source) {
  if (!source.hf_config && !source.preset) return {source.keys, "model"};
  std::string json, where;
  if (source.hf_config) {
    const std::string folder = hub_snapshot(*source.hf_config);
    const std::string path = folder_exists(folder) ? folder + "/config.json" : folder;
    if (const std::optional<std::string> other = is_there(path) ? std::nullopt : what_stands_at(folder))
      throw ConfigError(fmt::format("model.hf_config = {}: {}", folder, *other));
    json = named_file(path, "model.hf_config");
    where = fmt::format("model.hf_config = {}", path);
  } else {
    json = model_preset_json(*source.preset, "model.preset");
    where = "model.preset";
  }
  return {hf_config_keys(parse_json(json, where, {.blame = ExitCode::kData}), source.keys), where};
}

}  // namespace

JsonValue model_keys(const TrainConfig& config) { return keys_of(config.model).first; }

ModelConfig resolve_model(const TrainConfig& config) {
  const auto [keys, where] = keys_of(config.model);
  return model_config_from_hf(keys, where, config.model.dropout);
}

std::optional<std::string> tokenizer_of_vocabulary(const ModelConfig& model) {
  const bool filled_up = model.family == ModelFamily::kGpt2 && model.vocab_size >= kGpt2Tokens && model.vocab_size <= kFilledUp;
  return model.vocab_size == kGpt2Tokens || filled_up ? std::optional<std::string>("gpt2") : std::nullopt;
}

}  // namespace trident
