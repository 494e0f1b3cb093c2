#include "train/config/resolve_tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/name_pattern.h"
#include "core/nearest_name.h"
#include "model/config/hf_tensors.h"
#include "model/config/param_names.h"
#include "model/config/peft_config.h"
#include "train/config/resolve_adapter.h"

namespace trident {
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

// The three names that a pattern probably meant, those that contain its letters first; of the blocks, the first one's.
std::vector<std::string> nearest(const std::string& pattern, const std::vector<NamedTensor>& names) {
  std::string plain = pattern;
  std::erase_if(plain, [](char c) { return std::string_view("\\^$*+?()[]{}|").find(c) != std::string_view::npos; });
  plain.resize(std::min<std::size_t>(plain.size(), 100));
  while (plain.starts_with('.')) plain.erase(0, 1);
  while (plain.ends_with('.')) plain.pop_back();
  std::vector<std::tuple<bool, std::size_t, std::string>> order;
  for (const auto& [name, tensor] : names) {
    const bool other_block = name.find_first_of("0123456789") != std::string::npos && name.find(".0.") == std::string::npos;
    if (!other_block) order.emplace_back(name.find(plain) == std::string::npos, edit_distance(plain, name), name);
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
      if (is_saved_module(config.adapter.modules_to_save, std::string_view(name).substr(0, name.rfind('.'))))
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
    if (!matches)
      throw ConfigError(fmt::format("{} = {}: is the whole name of no tensor of the model; the nearest are {} (write .* for what "
                                    "may stand before or behind)",
                                    key, in_quotes(pattern), fmt::join(nearest(pattern, names), ", ")));
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

}  // namespace trident
