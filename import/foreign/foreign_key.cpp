#include "import/foreign/foreign_key.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/nearest_name.h"
#include "import/foreign/tables.h"

namespace trident {
namespace {

struct System {
  std::string_view name, default_origin;
  std::span<const ForeignKey> (*rows)();
};
// In the order of ForeignSystem.
constexpr std::array<System, kForeignSystems> kSystems{{
    {"Accelerate", "Accelerate's default", accelerate_rows},
    {"DeepSpeed", "DeepSpeed's default", deepspeed_rows},
    {"Hugging Face: Trainer, TRL, PEFT", "TrainingArguments' default", hugging_face_rows},
    {"ms-swift", "ms-swift's default", swift_rows},
    {"axolotl", "axolotl's default", axolotl_rows},
    {"LLaMA-Factory", "LLaMA-Factory's default", llama_factory_rows},
    {"Megatron-LM", "Megatron-LM's default", megatron_rows},
    {"torchtitan", "torchtitan's default", torchtitan_rows},
    {"OLMo", "OLMo's default", olmo_rows},
    {"launchers", "the launcher's default", launcher_rows},
    {"others", "its default", other_rows},
}};

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

// "param_groups.lr" of "param_groups[0].lr": a key of a list's items may have a row of its own.
std::string name_within_lists(std::string_view name) {
  std::string whole;
  for (bool is_index = false; const char c : name) {
    is_index |= c == '[';
    if (!is_index) whole += c;
    is_index &= c != ']';
  }
  return whole;
}

}  // namespace

std::string plain_foreign_name(std::string_view name) {
  name.remove_prefix(std::min(name.size(), name.find_first_not_of('-')));
  std::string plain(name.substr(0, name.find('[')));
  std::ranges::replace(plain, '-', '_');
  return plain;
}

std::span<const ForeignSection> foreign_sections() {
  static const std::vector<ForeignSection> sections = [] {
    std::vector<ForeignSection> all;
    for (std::size_t i = 0; i < kSystems.size(); ++i)
      for (std::span<const ForeignKey> rows = kSystems[i].rows(); !rows.empty();) {
        const auto behind = std::find_if(rows.begin() + 1, rows.end(), is_heading);
        const std::size_t count = static_cast<std::size_t>(behind - rows.begin());
        all.push_back({static_cast<ForeignSystem>(i), rows.front().names, rows.subspan(1, count - 1)});
        rows = rows.subspan(count);
      }
    return all;
  }();
  return sections;
}

std::string_view name_of(ForeignSystem system) { return kSystems[static_cast<std::size_t>(system)].name; }
std::string_view default_origin(ForeignSystem system) { return kSystems[static_cast<std::size_t>(system)].default_origin; }

std::string_view name_of(Verdict verdict) {
  static constexpr std::array<std::string_view, 6> kNames{"mapped",    "always so here", "differs",
                                                          "not built", "refused",        "launcher's matter"};
  return kNames[static_cast<std::size_t>(verdict)];
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

bool is_among_values(std::string_view value, const std::vector<std::string_view>& values) {
  return std::ranges::any_of(values, [&](std::string_view one) { return is_same_value(one, value); });
}

ForeignTables::ForeignTables(std::span<const ForeignSection> sections) : sections_(sections) {
  for (const ForeignSection& section : sections)
    for (const ForeignKey& row : section.keys) {
      const ForeignNames parts = names_of(row);
      OfSystem& keys = systems_[static_cast<std::size_t>(section.system)];
      for (const std::string_view name : parts.names) {
        std::string plain = plain_foreign_name(name);
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

std::vector<const ForeignKey*> ForeignTables::find_all(ForeignSystem system, std::string_view name, std::string_view value) const {
  std::string plain = plain_foreign_name(name);
  if (const std::string whole = name_within_lists(name); whole != plain)
    for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
      if (of(*one).exact.contains(whole)) plain = whole;
  std::vector<const ForeignKey*> found;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one)) {
    const auto rows = of(*one).exact.find(plain);
    if (rows == of(*one).exact.end()) continue;
    for (const Row& row : rows->second)
      if (row.answers(value) && (found.empty() || row.values.empty() == names_of(*found.front()).values.empty()))
        found.push_back(row.key);
    if (!found.empty()) return found;
  }
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    for (const auto& [prefix, row] : of(*one).prefixes)
      if (plain.starts_with(prefix) && row.answers(value)) return {row.key};
  return {};
}

const ForeignKey* ForeignTables::find(ForeignSystem system, std::string_view name, std::string_view value) const {
  const std::vector<const ForeignKey*> rows = find_all(system, name, value);
  return rows.empty() ? nullptr : rows.front();
}

const ForeignKey* ForeignTables::find_key(ForeignSystem system, std::string_view name) const {
  const ForeignKey* const any = find(system, name, "");
  if (any != nullptr && any->verdict == Verdict::kMapped) return any;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    if (const auto rows = of(*one).exact.find(plain_foreign_name(name)); rows != of(*one).exact.end())
      for (const Row& row : rows->second)
        if (row.key->verdict == Verdict::kMapped) return row.key;
  return any;
}

std::string ForeignTables::values_of(ForeignSystem system, std::string_view name) const {
  std::string values;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    if (const auto rows = of(*one).exact.find(name); rows != of(*one).exact.end())
      for (const Row& row : rows->second)
        for (const std::string_view value : row.values) values.append(values.empty() ? "" : ", ").append(value);
  return values;
}

std::string_view ForeignTables::nearest(ForeignSystem system, std::string_view name) const {
  std::vector<std::string_view> names;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    for (const auto& [known, rows] : of(*one).exact) names.push_back(known);
  const std::string plain = plain_foreign_name(name);
  const auto of_training = std::ranges::find_if(names, [&](std::string_view one) { return one.ends_with("train_" + plain); });
  if (of_training != names.end()) return *of_training;  // per_device_train_batch_size, not block_size, of batch_size
  if (const std::string_view likely = likely_name(plain, names); !likely.empty()) return likely;
  const auto longer = std::ranges::find_if(names, [&](std::string_view one) { return plain.size() > 5 && one.starts_with(plain); });
  return longer == names.end() ? "" : *longer;
}

const ForeignTables& foreign_tables() {
  static const ForeignTables tables(foreign_sections());
  return tables;
}

}  // namespace trident
