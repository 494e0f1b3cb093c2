#include "train/foreign/foreign_key.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/nearest_name.h"
#include "train/foreign/tables.h"

namespace trident {
namespace {

// Hyphens before a flag are none of its name; hyphens within are underscores.
std::string plain_name(std::string_view name) {
  std::string plain(name.substr(std::min(name.size(), name.find_first_not_of('-'))));
  std::ranges::replace(plain, '-', '_');
  return plain;
}

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(", "), list.size());
    parts.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(list.size(), comma + 2));
  }
  return parts;
}

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

bool is_same_value(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  };
  if (std::ranges::equal(a, b, same)) return true;
  const std::optional<double> x = number_of(a), y = number_of(b);
  return x && y && *x == *y;
}

}  // namespace

std::span<const ForeignSection> foreign_sections() {
  static const std::vector<ForeignSection> sections = [] {
    std::vector<ForeignSection> all;
    for (const auto part : {accelerate_sections(), deepspeed_sections(), hugging_face_sections(), swift_sections(),
                            axolotl_sections(), llama_factory_sections(), megatron_sections(), torchtitan_sections(),
                            olmo_sections(), launcher_sections(), other_sections()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return sections;
}

std::string_view name_of(ForeignSystem system) {
  switch (system) {
    case ForeignSystem::kAccelerate: return "Accelerate";
    case ForeignSystem::kDeepSpeed: return "DeepSpeed";
    case ForeignSystem::kHuggingFace: return "Hugging Face: Trainer, TRL, PEFT";
    case ForeignSystem::kSwift: return "ms-swift";
    case ForeignSystem::kAxolotl: return "axolotl";
    case ForeignSystem::kLlamaFactory: return "LLaMA-Factory";
    case ForeignSystem::kMegatron: return "Megatron-LM";
    case ForeignSystem::kTorchtitan: return "torchtitan";
    case ForeignSystem::kOlmo: return "OLMo";
    case ForeignSystem::kLauncher: return "launchers";
    case ForeignSystem::kOthers: return "others";
  }
  return "?";
}

std::string_view default_origin(ForeignSystem system) {
  switch (system) {
    case ForeignSystem::kAccelerate: return "Accelerate's default";
    case ForeignSystem::kDeepSpeed: return "DeepSpeed's default";
    case ForeignSystem::kHuggingFace: return "TrainingArguments' default";
    case ForeignSystem::kSwift: return "ms-swift's default";
    case ForeignSystem::kAxolotl: return "axolotl's default";
    case ForeignSystem::kLlamaFactory: return "LLaMA-Factory's default";
    case ForeignSystem::kMegatron: return "Megatron-LM's default";
    case ForeignSystem::kTorchtitan: return "torchtitan's default";
    case ForeignSystem::kOlmo: return "OLMo's default";
    case ForeignSystem::kLauncher: return "the launcher's default";
    case ForeignSystem::kOthers: return "its default";
  }
  return "?";
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMapped: return "mapped";
    case Verdict::kAlways: return "always so here";
    case Verdict::kDiffers: return "differs";
    case Verdict::kNotBuilt: return "not built";
    case Verdict::kRefused: return "refused";
    case Verdict::kLauncher: return "launcher's matter";
  }
  return "?";
}

std::optional<ForeignSystem> base_of(ForeignSystem system) {
  const bool builds_on_trainer =
      system == ForeignSystem::kSwift || system == ForeignSystem::kAxolotl || system == ForeignSystem::kLlamaFactory;
  return builds_on_trainer ? std::optional(ForeignSystem::kHuggingFace) : std::nullopt;
}

ForeignNames names_of(const ForeignKey& row) {
  const std::size_t equals = row.names.find(" = ");
  if (equals == row.names.npos) return {parts_of(row.names), {}};
  return {parts_of(row.names.substr(0, equals)), parts_of(row.names.substr(equals + 3))};
}

bool ForeignTables::Row::answers(std::string_view value) const {
  return values.empty() || std::ranges::any_of(values, [&](std::string_view one) { return is_same_value(one, value); });
}

ForeignTables::ForeignTables(std::span<const ForeignSection> sections) : sections_(sections) {
  for (const ForeignSection& section : sections)
    for (const ForeignKey& row : section.keys) {
      const ForeignNames parts = names_of(row);
      OfSystem& keys = systems_[static_cast<std::size_t>(section.system)];
      for (const std::string_view name : parts.names) {
        std::string plain = plain_name(name);
        if (plain.ends_with('*'))
          keys.prefixes.push_back({plain.substr(0, plain.size() - 1), {&row, parts.values}});
        else
          keys.exact[std::move(plain)].push_back({&row, parts.values});
      }
    }
  for (OfSystem& keys : systems_) {
    for (auto& [name, rows] : keys.exact) std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.values.empty(); });
    std::ranges::stable_sort(keys.prefixes, std::greater<>(),
                             [](const auto& prefix) { return std::pair(prefix.first.size(), !prefix.second.values.empty()); });
  }
}

const ForeignKey* ForeignTables::find(ForeignSystem system, std::string_view name, std::string_view value) const {
  const std::string plain = plain_name(name);
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    if (const auto rows = of(*one).exact.find(plain); rows != of(*one).exact.end())
      for (const Row& row : rows->second)
        if (row.answers(value)) return row.key;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    for (const auto& [prefix, row] : of(*one).prefixes)
      if (plain.starts_with(prefix) && row.answers(value)) return row.key;
  return nullptr;
}

std::string_view ForeignTables::nearest(ForeignSystem system, std::string_view name) const {
  std::vector<std::string_view> names;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    for (const auto& [known, rows] : of(*one).exact) names.push_back(known);
  return likely_name(plain_name(name), names);
}

const ForeignTables& foreign_tables() {
  static const ForeignTables tables(foreign_sections());
  return tables;
}

}  // namespace trident
