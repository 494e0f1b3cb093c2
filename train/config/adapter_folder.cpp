#include "train/config/adapter_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/json_reader.h"
#include "model/config/hf_tensors.h"
#include "model/config/peft_config.h"
#include "train/config/option_check.h"
#include "train/config/resolve_adapter.h"
#include "train/config/resolve_model.h"
#include "train/config/resolve_tuning.h"

namespace trident {
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
    const std::string module = tensor.substr(0, tensor.rfind('.'));
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
    throw ConfigError(fmt::format("adapter.init_from = {}: {} is not there; name a folder that PEFT or trident convert --to "
                                  "peft wrote",
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
  take("adapter.dropout", adapter.dropout, peft.dropout);
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
