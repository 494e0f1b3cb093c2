#include "model/config/peft_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "core/name_pattern.h"
#include "model/config/hf_reader.h"
#include "model/config/hf_tensors.h"
#include "model/config/param_names.h"

namespace trident {
namespace {

constexpr std::string_view kMerge = "merge it with PEFT (merge_and_unload()), and name the folder with the merged weights";

// A regular expression that must fit all of a name. The dialects of Python and of C++ agree in all but what is refused here.
FitsName pattern(const HfReader& reader, std::string_view key, const std::string& text) {
  for (std::size_t at = text.find('\\'); at != text.npos && at + 1 < text.size(); at = text.find('\\', at + 2))
    if (std::isalpha(static_cast<unsigned char>(text[at + 1])) != 0 &&
        std::string_view("dDwWsSbB").find(text[at + 1]) == std::string_view::npos)
      reader.refuse(key, fmt::format("\\{} is not supported in a regular expression; name the modules in a list", text[at + 1]));
  try {
    return name_pattern(text);
  } catch (const BadNamePattern&) {
    reader.refuse(key, "is no regular expression that is supported; name the modules in a list");
  }
}

std::vector<std::string> texts(const HfReader& reader, std::string_view key, const JsonValue* value) {
  std::vector<std::string> list;
  if (value == nullptr) return list;
  if (value->is_string()) return {value->as_string()};
  const bool is_list = value->is_array() && std::ranges::all_of(value->items(), &JsonValue::is_string);
  if (!is_list) reader.refuse(key, "must be a list of names");
  for (const JsonValue& item : value->items()) list.push_back(item.as_string());
  return list;
}

// A list of names, each of which may be the end of a module's, or one regular expression.
FitsName names_or_pattern(HfReader& reader, std::string_view key) {
  const JsonValue* const value = reader.find(key);
  if (value != nullptr && value->is_string()) return pattern(reader, key, value->as_string());
  return [names = texts(reader, key, value)](std::string_view module) {
    return std::ranges::any_of(names, [&](const std::string& name) { return is_end_of_name(name, module); });
  };
}

// rank_pattern and alpha_pattern: the first key that fits the end of a module's name, as a regular expression, says the number.
std::function<double(const std::string& module, double otherwise)> by_pattern(HfReader& reader, std::string_view key) {
  std::vector<std::pair<FitsName, double>> rows;
  if (const JsonValue* const value = reader.find(key)) {
    if (!value->is_object()) reader.refuse(key, "must be an object of numbers by module");
    for (const auto& [name, number] : value->members()) {
      if (!number.is_number()) reader.refuse(key, "must be an object of numbers by module");
      rows.emplace_back(pattern(reader, key, fmt::format("(.*\\.)?({})", name)), number.as_number());
    }
  }
  return [rows = std::move(rows)](const std::string& module, double otherwise) {
    const auto row = std::ranges::find_if(rows, [&](const auto& it) { return it.first(module); });
    return row == rows.end() ? otherwise : row->second;
  };
}

// layers_to_transform, of modules that a list names by their ends; layers_pattern: what stands before the layer's number.
FitsName layers(HfReader& reader) {
  const JsonValue* const value = reader.find("layers_to_transform");
  const std::vector<std::string> before = texts(reader, "layers_pattern", reader.find("layers_pattern"));
  if (value == nullptr || says_nothing(*value)) return [](std::string_view) { return true; };
  const JsonValue::Array numbers = value->is_array() ? value->items() : JsonValue::Array{*value};
  std::vector<std::string> alternatives;
  for (const JsonValue& number : numbers) {
    if (!number.is_integer()) reader.refuse("layers_to_transform", "must be a layer's number, or a list of such");
    alternatives.push_back(fmt::format("{}", number.as_integer()));
  }
  return pattern(reader, "layers_pattern",
                 fmt::format("(?:.*\\.)?{}\\.(?:{})\\..*", before.empty() ? "[^.]*" : fmt::format("(?:{})", fmt::join(before, "|")),
                             fmt::join(alternatives, "|")));
}

// Which modules have adapters, and which are copied whole.
struct Targets {
  FitsName targeted, saved;
};

Targets read_targets(HfReader& reader, const ModelConfig& base) {
  const std::vector<std::string> saved = texts(reader, "modules_to_save", reader.find("modules_to_save"));
  const FitsName excluded = names_or_pattern(reader, "exclude_modules"), in_layer = layers(reader);
  const JsonValue* const value = reader.find("target_modules");
  FitsName named = names_or_pattern(reader, "target_modules");
  const std::vector<std::string> list = texts(reader, "target_modules", value);
  if (value != nullptr && value->is_string()) {
    if (value->as_string() == "all-linear")
      named = [ends = end_names(base)](std::string_view module) {
        return module != ends.head && module != ends.embedding && module != ends.positions;
      };
  } else {
    named = [named, in_layer, list](std::string_view module) {
      return std::ranges::find(list, module) != list.end() || (named(module) && in_layer(module));
    };
  }
  const auto is_saved = [saved](std::string_view module) { return is_saved_module(saved, module); };
  return {[=](std::string_view module) { return !excluded(module) && !is_saved(module) && named(module); }, is_saved};
}

// Initial values that are differences from the base's are refused: its weights were changed with them.
void check_initial(HfReader& reader) {
  const JsonValue* const value = reader.find("init_lora_weights");
  const bool is_plain = value == nullptr || value->is_bool() ||
                        (value->is_string() &&
                         (value->as_string() == "gaussian" || value->as_string() == "orthogonal" || value->as_string() == "eva"));
  if (!is_plain)
    reader.refuse("init_lora_weights", fmt::format("changes the base's weights, too, and is not supported; {}", kMerge));
}

void check_kind(HfReader& reader) {
  if (reader.text("peft_type", "") != "LORA") reader.refuse("peft_type", fmt::format("must be LORA; {}", kMerge));
  if (const std::string task = reader.text("task_type", "CAUSAL_LM"); task != "CAUSAL_LM")
    reader.refuse("task_type", "must be CAUSAL_LM; an adapter for another task has other tensors");
  check_initial(reader);
  for (const std::string_view key :
       {"alora_invocation_tokens", "arrow_config", "corda_config", "eva_config", "kasa_config", "layer_replication", "loftq_config",
        "lora_bias", "lora_ga_config", "megatron_config", "monteclora_config", "target_parameters", "trainable_token_indices",
        "use_bdlora", "use_qalora", "velora_config"})
    if (const JsonValue* const value = reader.find(key); value != nullptr && !says_nothing(*value))
      reader.refuse(key, fmt::format("not supported; {}", kMerge));
  reader.ignore_all(
      "auto_mapping ensure_weight_tying fan_in_fan_out inference_mode megatron_core peft_version "
      "qalora_group_size revision runtime_config");
}

// PEFT trains two copies of what the base has once, except where it is told to keep them tied.
void check_tied(HfReader& reader, const Targets& targets, const ModelConfig& base) {
  const EndNames ends = end_names(base);
  if (targets.targeted(ends.embedding) || (!ends.positions.empty() && targets.targeted(ends.positions)))
    reader.refuse("target_modules", fmt::format("names the embedding, whose adapters are not supported; {}", kMerge));
  if (!base.tie_embeddings) return;
  constexpr std::string_view kUntie = "save the base with tie_word_embeddings false and train the adapter on that";
  if (targets.targeted(ends.head))
    reader.refuse("target_modules",
                  fmt::format("names {}, which the base has in common with its embedding; {}", ends.head, kUntie));
  const bool embedding = targets.saved(ends.embedding), head = targets.saved(ends.head);
  if (embedding != head && !reader.boolean("ensure_weight_tying", false))
    reader.refuse("modules_to_save",
                  fmt::format("has one of {} and {}, and the base has both in common; {}, or with ensure_weight_tying true",
                              ends.embedding, ends.head, kUntie));
}

}  // namespace

bool is_saved_module(const std::vector<std::string>& modules_to_save, std::string_view module) {
  for (std::size_t end = module.find('.');; end = module.find('.', end + 1)) {
    const std::string_view around = module.substr(0, end);
    if (std::ranges::any_of(modules_to_save, [&](const std::string& name) { return around.ends_with(name); })) return true;
    if (end == module.npos) return false;
  }
}

PeftConfig read_peft_config(const JsonValue& json, const ModelConfig& base, const std::string& where) {
  std::set<const JsonMember*> dropped;  // keys of other versions that are switched off
  HfReader reader(json, where, &dropped);
  check_kind(reader);
  PeftConfig config;
  for (const char* const key : {"r", "lora_alpha", "lora_dropout", "bias"})  // PEFT trains nothing with none of these
    if (const JsonValue* const value = json.find(key); value != nullptr && value->is_null())
      reader.refuse(key, "must have a value; write the one that the adapter was trained with");
  config.dora = reader.boolean("use_dora", false);
  config.base = reader.text("base_model_name_or_path", "");
  config.rank = reader.integer("r", 8);
  config.alpha = reader.number("lora_alpha", 8);
  config.dropout = reader.number("lora_dropout", 0);
  config.rslora = reader.boolean("use_rslora", false);
  const auto r = static_cast<double>(config.rank);
  const std::string bias = reader.text("bias", "none");
  if (bias != "none" && bias != "all" && bias != "lora_only") reader.refuse("bias", "must be none, all or lora_only");
  const auto rank_of = by_pattern(reader, "rank_pattern"), alpha_of = by_pattern(reader, "alpha_pattern");
  const Targets targets = read_targets(reader, base);
  reader.refuse_unknown_keys();
  check_tied(reader, targets, base);

  const std::vector<HfTensor> tensors = hf_tensors(base);
  for (const HfTensor& tensor : tensors) {
    const std::string module = module_name(tensor.name);
    const bool is_weight = tensor.name.ends_with(".weight"), targeted = targets.targeted(module);
    if (is_weight && targeted && tensor.shape.size() == 2) {
      const std::size_t out = tensor.transposed ? 1 : 0;
      const double rank = rank_of(module, r);
      if (!(rank >= 1 && rank <= 65536 && rank == std::floor(rank)))
        reader.refuse(
            "r", fmt::format("and rank_pattern say the rank {} of {}; it must be a whole number from 1 to 65536", rank, module));
      config.modules.push_back({module, tensor.shape[1 - out], tensor.shape[out], static_cast<std::int64_t>(rank),
                                alpha_of(module, config.alpha) / (config.rslora ? std::sqrt(rank) : rank), tensor.transposed});
    }
    const bool bias_is_trained = !is_weight && (bias == "all" || (bias == "lora_only" && targeted));
    if (bias_is_trained || targets.saved(module)) config.copies.push_back(tensor.name);
  }
  if (base.tie_embeddings && targets.saved(end_names(base).head) && !targets.saved(end_names(base).embedding))
    config.copies.push_back(fmt::format("{}.weight", end_names(base).embedding));
  if (config.modules.empty())
    reader.refuse("target_modules", "names no linear layer of the base; it is an adapter of another model");
  return config;
}

}  // namespace trident
