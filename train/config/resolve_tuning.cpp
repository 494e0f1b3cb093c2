#include "train/config/resolve_tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/json_reader.h"
#include "core/name_pattern.h"
#include "core/nearest_name.h"
#include "model/config/hf_tensors.h"
#include "model/config/param_names.h"
#include "model/config/peft_config.h"
#include "train/config/option_check.h"
#include "train/config/resolve_model.h"

namespace trident {
namespace {

[[noreturn]] void refuse(std::string_view key, const std::string& why) {
  throw ConfigError(fmt::format("adapter.{}: {}", key, why));
}

// A name is a module's, or the end of one behind a dot; a text with other characters is a regular expression of whole names.
std::function<bool(std::string_view)> matcher(std::string_view key, const std::string& text) {
  const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  if (std::ranges::all_of(text, is_of_name))
    return [text](std::string_view module) { return is_end_of_name(text, module); };
  try {
    return name_pattern(text);
  } catch (const BadNamePattern&) {
    refuse(key,
           fmt::format("{} is neither a module's name nor a regular expression; name a module such as q_proj", in_quotes(text)));
  }
}

// The layer that a module is in: the number in its name.
std::int64_t layer_of(const std::string& module) {
  const std::size_t digit = module.find_first_of("0123456789", module.find('.'));
  return std::stoll(module.substr(digit));
}

[[noreturn]] void refuse_unknown(std::string_view key, const std::string& text, const std::vector<std::string>& modules) {
  std::vector<std::string_view> words;
  for (const std::string& module : modules)
    if (std::ranges::find(words, last_word(module)) == words.end()) words.push_back(last_word(module));
  refuse(key, fmt::format("{} is no module of the model; it has {}{}", in_quotes(text), fmt::join(words, ", "),
                          name_hint(last_word(text), words)));
}

}  // namespace

std::vector<std::string> adaptable_modules(const ModelConfig& model) {
  const EndNames ends = end_names(model);
  std::vector<std::string> modules;
  for (const HfTensor& tensor : hf_tensors(model)) {
    const std::string module = module_name(tensor.name);
    const bool is_end = module == ends.embedding || module == ends.positions || module == ends.head;
    if (tensor.shape.size() == 2 && !is_end) modules.push_back(module);
  }
  return modules;
}

AdapterSpec resolve_adapter(const AdapterConfig& adapter, const ModelConfig& model) {
  const std::vector<std::string> all = adaptable_modules(model);
  const EndNames ends = end_names(model);
  std::vector<std::string> without{ends.embedding, ends.head};  // they never have adapters
  if (!ends.positions.empty()) without.push_back(ends.positions);
  std::set<std::string> taken;
  for (const std::string& target : adapter.target_modules) {
    const auto matches = matcher("target_modules", target);
    const auto is_target = [&](const std::string& module) { return target == "all-linear" || matches(module); };
    if (std::ranges::none_of(all, is_target)) {
      if (const auto end = std::ranges::find_if(without, matches); end != without.end())
        refuse("target_modules", fmt::format("{}: adapters of {} are not built yet; leave it out", in_quotes(target), *end));
      refuse_unknown("target_modules", target, all);
    }
    std::ranges::copy_if(all, std::inserter(taken, taken.end()), is_target);
  }
  for (const std::string& excluded : adapter.exclude_modules) {
    const auto matches = matcher("exclude_modules", excluded);
    if (std::ranges::none_of(all, matches) && std::ranges::none_of(without, matches))
      refuse_unknown("exclude_modules", excluded, all);
    std::erase_if(taken, [&](const std::string& module) { return matches(module); });
  }
  std::vector<std::string> saveable;
  for (const HfTensor& tensor : hf_tensors(model)) saveable.push_back(module_name(tensor.name));
  saveable.push_back(ends.head);
  for (const std::string& saved : adapter.modules_to_save) {
    const auto is_saved = [&](const std::string& module) { return is_saved_module({saved}, module); };
    if (std::ranges::none_of(saveable, is_saved)) refuse_unknown("modules_to_save", saved, saveable);
    std::erase_if(taken, is_saved);
  }
  if (adapter.layers) {
    for (const std::int64_t layer : *adapter.layers)
      if (layer >= model.layers)
        refuse("layers", fmt::format("{}: the model has layers 0 to {}; leave it out", layer, model.layers - 1));
    std::erase_if(taken, [&](const std::string& module) {
      return std::ranges::find(*adapter.layers, layer_of(module)) == adapter.layers->end();
    });
  }
  if (taken.empty())
    refuse("target_modules", "no module is left by exclude_modules, modules_to_save and layers; leave one of them out");
  AdapterSpec spec{.modules = {}, .dropout = adapter.dropout, .dora = adapter.type == "dora"};
  const auto r = static_cast<double>(adapter.r);
  const double scale = adapter.alpha / (adapter.rslora ? std::sqrt(r) : r);
  for (const std::string& module : taken) spec.modules.push_back({module, adapter.r, scale});
  return spec;
}

namespace {

// A name and the tensor that it means.
using NamedTensor = std::pair<std::string, std::string>;

std::vector<NamedTensor> names_of(const ModelConfig& model) {
  std::vector<NamedTensor> names;
  for (const HfTensor& tensor : hf_tensors(model)) names.emplace_back(tensor.name, tensor.name);
  const EndNames ends = end_names(model);
  if (model.tie_embeddings) names.emplace_back(ends.head + ".weight", ends.embedding + ".weight");
  return names;
}

FitsName compiled(std::string_view key, const std::string& pattern) {
  try {
    return name_pattern(pattern);
  } catch (const BadNamePattern& error) {
    throw ConfigError(fmt::format("{} = {}: {}; write a regular expression such as \"model\\\\.layers\\\\.0\\\\..*\"", key,
                                  in_quotes(pattern), error.what()));
  }
}

// A pattern without the signs of regular expressions is compared with names.
std::string plain_of(std::string pattern) {
  std::erase_if(pattern, [](char c) { return std::string_view("\\^$*+?()[]{}|").find(c) != std::string_view::npos; });
  pattern.resize(std::min<std::size_t>(pattern.size(), 100));
  while (pattern.starts_with('.')) pattern.erase(0, 1);
  while (pattern.ends_with('.')) pattern.pop_back();
  return pattern;
}

// The edits that make `plain` a part of `name`.
std::size_t edits_within(std::string_view plain, std::string_view name) {
  std::size_t least = edit_distance(plain, name);
  for (std::size_t at = 0; at + plain.size() <= name.size(); ++at)
    least = std::min(least, edit_distance(plain, name.substr(at, plain.size())));
  return least;
}

// The three names that a pattern probably meant, those first of which it is nearly a part; of the blocks, the first one's.
std::vector<std::string> nearest(const std::string& plain, const std::vector<NamedTensor>& names) {
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> order;
  for (const auto& [name, tensor] : names) {
    const bool other_block = name.find_first_of("0123456789") != std::string::npos && name.find(".0.") == std::string::npos;
    if (!other_block) order.emplace_back(edits_within(plain, name), edit_distance(plain, name), name);
  }
  std::ranges::sort(order);
  std::vector<std::string> found;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i) found.push_back(std::get<2>(order[i]));
  return found;
}

}  // namespace

std::shared_ptr<const Tuning> resolve_tuning(const TrainConfig& config, const ModelConfig& model) {
  const bool only = !config.train.only.empty();
  const std::vector<std::string>& patterns = only ? config.train.only : config.train.freeze;
  const std::string_view key = only ? "train.only" : "train.freeze";
  if (patterns.empty() && !config.adapter.type) return nullptr;
  const std::vector<NamedTensor> names = names_of(model);
  Tuning tuning;
  if (config.adapter.type) {
    for (const auto& [name, tensor] : names) tuning.frozen.insert(tensor);
    tuning.adapters = resolve_adapter(config.adapter, model);
    for (const auto& [name, tensor] : names)
      if (is_saved_module(config.adapter.modules_to_save, module_name(name)))
        tuning.frozen.erase(tensor);
    return std::make_shared<const Tuning>(std::move(tuning));
  }
  std::set<std::string, std::less<>> matched;
  for (const std::string& pattern : patterns) {
    const FitsName fits = compiled(key, pattern);
    bool matches = false;
    for (const auto& [name, tensor] : names) {
      if (!fits(name)) continue;
      matches = true;
      matched.insert(tensor);
    }
    if (matches) continue;
    // PEFT takes parts of names.
    const std::string plain = plain_of(pattern), within = fmt::format(".{}.", plain);
    const auto has_part = [&](const NamedTensor& name) {
      return fmt::format(".{}.", name.first).find(within) != std::string::npos;
    };
    if (const std::int64_t count = plain.empty() ? 0 : std::ranges::count_if(names, has_part); count > 0) {
      std::string dots;
      for (const char c : plain) dots += c == '.' ? "[.]" : std::string(1, c);
      throw ConfigError(
          fmt::format("{} = {}: no tensor of the model has this name, which would have to be the whole; write "
                      "\"(.*[.])?{}([.].*)?\" for {} whose names it is a part of",
                      key, in_quotes(pattern), dots, counted(count, "tensor")));
    }
    throw ConfigError(
        fmt::format("{} = {}: no tensor of the model has this name, which would have to be the whole; the nearest are "
                    "{} (write .* for what may stand before or behind)",
                    key, in_quotes(pattern), fmt::join(nearest(plain, names), ", ")));
  }
  for (const auto& [name, tensor] : names)
    if (matched.contains(tensor) != only) tuning.frozen.insert(tensor);
  if (tuning.frozen.empty()) return nullptr;
  const bool trains = std::ranges::any_of(names, [&](const NamedTensor& name) { return tuning.trains(name.second); });
  if (!trains)
    throw ConfigError(fmt::format("{} = [{}]: freezes every tensor of the model; leave out what is to be trained", key,
                                  fmt::join(patterns, ", ")));
  return std::make_shared<const Tuning>(std::move(tuning));
}

namespace {

std::vector<std::string> names_of(const AdapterSpec& spec) {
  std::vector<std::string> names;
  for (const AdaptedModule& module : spec.modules) names.push_back(module.module);
  return names;
}

// The model's tensors that train whole, sorted.
std::vector<std::string> copies_of(const TrainConfig& config, const ModelConfig& model) {
  const std::shared_ptr<const Tuning> tuning = resolve_tuning(config, model);
  std::vector<std::string> names;
  for (const HfTensor& tensor : hf_tensors(model))
    if (tuning->trains(tensor.name)) names.push_back(tensor.name);
  std::ranges::sort(names);
  return names;
}

// The modules of the folder, sorted; all have one rank and scale.
std::vector<std::string> modules_of(const PeftConfig& peft, const ModelConfig& model, const std::string& path) {
  const PeftModule& first = peft.modules.front();
  const auto differs = [&](const PeftModule& m) { return m.rank != first.rank || m.scale != first.scale; };
  if (const auto other = std::ranges::find_if(peft.modules, differs);
      other != peft.modules.end() || first.rank != peft.rank)
    throw ConfigError(fmt::format("{}: rank_pattern and alpha_pattern: a run trains adapters of one rank and scale; merge them "
                                  "(trident convert --from peft BASE ADAPTER --to ckpt OUT), and begin new ones beside the result",
                                  path));
  const std::vector<std::string> adaptable = adaptable_modules(model);
  std::vector<std::string> names;
  for (const PeftModule& module : peft.modules) {
    names.push_back(module.name);
    if (std::ranges::find(adaptable, module.name) == adaptable.end())
      throw ConfigError(fmt::format("{}: target_modules: a run trains no adapter of {}; merge it (trident convert --from peft BASE "
                                    "ADAPTER --to ckpt OUT), and begin new adapters beside the result",
                                    path, module.name));
  }
  std::ranges::sort(names);
  return names;
}

// The modules that the folder has copies of, sorted.
std::vector<std::string> saved_modules_of(const PeftConfig& peft, const std::string& path) {
  std::set<std::string> modules;
  for (const std::string& tensor : peft.copies) {
    const std::string module = module_name(tensor);
    if (std::ranges::find(peft.copies, module + ".weight") == peft.copies.end())
      throw ConfigError(fmt::format("{}: bias: {} was trained, and a run trains modules whole; merge it (trident convert --from "
                                    "peft BASE ADAPTER --to ckpt OUT), and begin new adapters beside the result",
                                    path, tensor));
    modules.insert(module);
  }
  return {modules.begin(), modules.end()};
}

// Refuses a key by which other names have `what` than the folder says. Both are sorted.
void refuse_other(std::string_view key, const std::vector<std::string>& asked, const std::vector<std::string>& says,
                  std::string_view what, const std::string& path) {
  const auto [ours, theirs] = std::ranges::mismatch(asked, says);
  if (ours == asked.end() && theirs == says.end()) return;
  const bool lacks = ours == asked.end() || (theirs != says.end() && *theirs < *ours);
  throw ConfigError(fmt::format("{}: leaves {} {} {}, and {} says otherwise; leave the key out, or begin without adapter.init_from",
                                key, lacks ? *theirs : *ours, lacks ? "without" : "with", what, path));
}

}  // namespace

void take_adapter_folder(TrainConfig& config, FunctionRef<bool(std::string_view key)> given) {
  AdapterConfig& adapter = config.adapter;
  const std::string path = fmt::format("{}/{}", hub_snapshot(*adapter.init_from), kPeftConfigName);
  if (!is_there(path) && adapter.type) return;
  if (!is_there(path))
    throw DataError(fmt::format("adapter.init_from = {}: {} is not there; name a folder that PEFT or trident convert --to peft "
                                "wrote",
                                in_quotes(*adapter.init_from), path));
  const ModelConfig model = resolve_model(config);
  const PeftConfig peft = read_peft_config(read_json_file(path, {.blame = ExitCode::kData}), model, path);
  const std::vector<std::string> modules = modules_of(peft, model, path);
  const auto take = [&](std::string_view key, auto& member, const auto& says) {
    const auto text = [](const auto& value) { return fmt::format("{}", value); };
    if (given(key) && text(member) != text(says))
      throw ConfigError(fmt::format("{} = {}: {} says {}; leave the key out, or begin without adapter.init_from", key, text(member),
                                    path, text(says)));
    checked_value(*find_option(key), JsonValue(says), path + ": ");
    member = says;
  };
  std::string type = adapter.type.value_or("");
  take("adapter.type", type, std::string(peft.dora ? "dora" : "lora"));
  adapter.type = type;
  take("adapter.r", adapter.r, peft.rank);
  take("adapter.alpha", adapter.alpha, peft.alpha);
  take("adapter.rslora", adapter.rslora, peft.rslora);
  if (!config.loss.is_dpo()) take("adapter.dropout", adapter.dropout, peft.dropout);  // DPO has none, whatever trained the folder
  TrainConfig theirs = config;
  theirs.adapter.modules_to_save = saved_modules_of(peft, path);
  if (given("adapter.modules_to_save"))
    refuse_other("adapter.modules_to_save", copies_of(config, model), copies_of(theirs, model), "a trained copy", path);
  adapter.modules_to_save = theirs.adapter.modules_to_save;
  for (const std::string_view key : {"adapter.target_modules", "adapter.exclude_modules", "adapter.layers"})
    if (given(key)) refuse_other(key, names_of(resolve_adapter(adapter, model)), modules, "an adapter", path);
  adapter.target_modules = modules;
  adapter.exclude_modules.clear();
  adapter.layers.reset();
}

}  // namespace trident
