#include "train/config/adapter_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/json_reader.h"
#include "model/config/peft_config.h"
#include "train/config/resolve_adapter.h"
#include "train/config/resolve_model.h"

namespace trident {
namespace {

std::vector<std::string> names_of(const AdapterSpec& spec) {
  std::vector<std::string> names;
  for (const AdaptedModule& module : spec.modules) names.push_back(module.module);
  return names;
}

// The modules of the folder, sorted; all have one rank and scale.
std::vector<std::string> modules_of(const PeftConfig& peft, const std::string& path) {
  const PeftModule& first = peft.modules.front();
  const auto differs = [&](const PeftModule& m) { return m.rank != first.rank || m.scale != first.scale; };
  if (const auto other = std::ranges::find_if(peft.modules, differs);
      other != peft.modules.end() || first.rank != peft.rank)
    throw ConfigError(fmt::format("{}: rank_pattern and alpha_pattern: a run trains adapters of one rank and scale; merge them "
                                  "(trident convert --from peft BASE ADAPTER --to ckpt OUT), and begin new ones beside the result",
                                  path));
  if (!peft.copies.empty())
    throw ConfigError(fmt::format("{}: bias and modules_to_save: {} was trained whole, and a run from this folder would train its "
                                  "adapters alone; merge it (trident convert --from peft BASE ADAPTER --to ckpt OUT), and begin "
                                  "new adapters beside the result",
                                  path, peft.copies.front()));
  std::vector<std::string> names;
  for (const PeftModule& module : peft.modules) names.push_back(module.name);
  std::ranges::sort(names);
  return names;
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
  const std::vector<std::string> modules = modules_of(peft, path);
  const auto take = [&](std::string_view key, auto& member, const auto& says) {
    const auto text = [](const auto& value) { return fmt::format("{}", value); };
    if (given(key) && text(member) != text(says))
      throw ConfigError(fmt::format("{} = {}: {} says {}; leave the key out, or begin without adapter.init_from", key, text(member),
                                    path, text(says)));
    member = says;
  };
  std::string type = adapter.type.value_or("");
  take("adapter.type", type, std::string(peft.dora ? "dora" : "lora"));
  adapter.type = type;
  take("adapter.r", adapter.r, peft.rank);
  take("adapter.alpha", adapter.alpha, peft.alpha);
  take("adapter.rslora", adapter.rslora, peft.rslora);
  take("adapter.dropout", adapter.dropout, peft.dropout);
  for (const std::string_view key : {"adapter.target_modules", "adapter.exclude_modules", "adapter.layers"}) {
    if (!given(key)) continue;
    const std::vector<std::string> asked = names_of(resolve_adapter(adapter, model));
    const auto [ours, theirs] = std::ranges::mismatch(asked, modules);
    if (ours == asked.end() && theirs == modules.end()) break;
    const bool lacks = ours == asked.end() || (theirs != modules.end() && *theirs < *ours);
    throw ConfigError(fmt::format("{}: leaves {} {} an adapter, and {} says otherwise; leave the key out, or begin without "
                                  "adapter.init_from",
                                  key, lacks ? *theirs : *ours, lacks ? "without" : "with", path));
  }
  adapter.target_modules = modules;
  adapter.exclude_modules.clear();
  adapter.layers.reset();
}

}  // namespace trident
