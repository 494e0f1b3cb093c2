#include "model/config/hf_reader.h"

#include <algorithm>

#include "core/check.h"
#include "core/nearest_name.h"
#include "core/printable.h"

namespace trident {

bool says_nothing(const JsonValue& value) {
  return value.is_null() || (value.is_bool() && !value.as_bool()) || (value.is_array() && value.items().empty()) ||
         (value.is_object() && value.members().empty());
}

namespace {

// Adds what `check` throws.
template <class Check>
void collect(std::string& faults, Check&& check) {
  try {
    check();
  } catch (const ConfigError& fault) {
    faults += fmt::format("{}{}", faults.empty() ? "" : "; also ", fault.what());
  }
}

// The beginning of a value, which may be of any length, for a message.
std::string value_text(const JsonValue* value) {
  constexpr std::size_t kShown = 80;
  if (value == nullptr) return "(missing)";
  const std::string text = to_json_text(*value);
  return text.size() <= kShown ? text : on_one_line(text.substr(0, kShown)) + "...";
}

}  // namespace

HfReader::HfReader(const JsonValue& object, std::string where, std::set<const JsonMember*>* dropped, JsonValue origins,
                   KeyHint hint)
    : object_(&object), where_(std::move(where)), origins_(std::move(origins)), hint_(std::move(hint)), dropped_(dropped) {
  if (!object.is_object())
    throw ConfigError(
        fmt::format("{}: must be an object with the keys of a Hugging Face config.json, not {}", where_, describe(object.kind())));
}

std::string HfReader::path(std::string_view key) const {
  const bool is_file = where_.ends_with(".json");
  const JsonValue* const origin = origins_.find(key);
  return fmt::format("{}{}{}{}", origin == nullptr ? "" : origin->as_string() + ": ", where_, is_file ? ": " : ".", key);
}

void HfReader::refuse(std::string_view key, std::string_view why) const {
  const JsonValue* const value = object_->find(key);
  std::string faults = missing_;
  collect(faults, [&] { throw ConfigError(fmt::format("{} = {}: {}", path(key), value_text(value), why)); });
  throw ConfigError(faults);
}

void HfReader::refuse_kind(std::string_view key, std::string_view wanted) const {
  refuse(key, fmt::format("must be {}, not {}", wanted, describe(object_->find(key)->kind())));
}

void HfReader::mark_known(std::string_view key, std::string_view takes, std::string_view fallback) {
  const auto known = std::ranges::find(known_, key, &HfKey::name);
  if (known == known_.end()) known_.push_back({std::string(key), std::string(takes), std::string(fallback)});
  else if (!takes.empty() && known->takes.empty()) known->takes = takes, known->fallback = fallback;
}

const JsonValue* HfReader::find(std::string_view key, std::string_view takes, std::string_view fallback) {
  mark_known(key, takes, fallback);
  const JsonValue* value = object_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool HfReader::present(std::string_view key) {
  mark_known(key);
  return object_->find(key) != nullptr;
}

std::optional<std::int64_t> HfReader::optional_integer(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_integer()) refuse_kind(key, "an integer");
  constexpr std::int64_t kLargest = (std::int64_t{1} << 31) - 1;  // no size is larger, and products of two stay in 64 bits
  if (value->as_integer() < -kLargest || value->as_integer() > kLargest) refuse(key, fmt::format("must be at most {}", kLargest));
  return value->as_integer();
}

std::int64_t HfReader::integer(std::string_view key, std::int64_t fallback, std::string_view derived) {
  mark_known(key, "an integer", derived.empty() ? to_json_text(fallback) : derived);
  return optional_integer(key).value_or(fallback);
}

std::int64_t HfReader::required_integer(std::string_view key) {
  mark_known(key, "an integer");
  const std::optional<std::int64_t> value = optional_integer(key);
  if (!value)
    collect(missing_, [&] {
      throw ConfigError(fmt::format("{}: is missing; give the model's size, it has no default", path(key)));
    });
  return value.value_or(1);
}

std::optional<double> HfReader::optional_number(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse_kind(key, "a number");
  return value->as_number();
}

double HfReader::number(std::string_view key, double fallback) {
  mark_known(key, "a number", to_json_text(fallback));
  return optional_number(key).value_or(fallback);
}

bool HfReader::boolean(std::string_view key, bool fallback) {
  const JsonValue* value = find(key, "true or false", fallback ? "true" : "false");
  if (value == nullptr) return fallback;
  if (!value->is_bool()) refuse_kind(key, "true or false");
  return value->as_bool();
}

std::string HfReader::text(std::string_view key, std::string_view fallback) {
  const JsonValue* value = find(key, "a string", fallback.empty() ? "" : in_quotes(fallback));
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) refuse_kind(key, "a string");
  return value->as_string();
}

std::string_view HfReader::spelling(std::string_view key, std::string_view alias) {
  const JsonValue* by_key = find(key);
  const JsonValue* by_alias = find(alias);
  if (by_key != nullptr && by_alias != nullptr && !(*by_key == *by_alias))
    refuse(key, fmt::format("contradicts {} = {}, another spelling of the same size; keep one", alias, to_json_text(*by_alias)));
  return by_key == nullptr && by_alias != nullptr ? alias : key;
}

void HfReader::refuse_true(std::string_view key, std::string_view what) {
  const JsonValue* value = find(key);
  if (value != nullptr && !value->is_bool()) refuse_kind(key, "true or false");
  if (value != nullptr && value->as_bool())
    refuse(key, fmt::format("{} not supported; set it to false only if the model was trained without", what));
}

void HfReader::ignore_all(std::string_view keys) {
  while (!keys.empty()) {
    const std::size_t length = std::min(keys.find(' '), keys.size());
    ignore(keys.substr(0, length));
    keys.remove_prefix(std::min(length + 1, keys.size()));
  }
}

void HfReader::refuse_unknown_keys() const {
  std::string faults;  // a misspelt key goes before the one that is missing for it
  for (const JsonMember& member : object_->members()) {
    const std::string& key = member.key;
    const auto is_prefix = [&](const std::string& prefix) { return key.starts_with(prefix); };
    if (std::ranges::find(known_, key, &HfKey::name) != known_.end()) continue;
    if (std::ranges::find(ignored_, key) != ignored_.end()) continue;
    if (std::ranges::any_of(ignored_prefixes_, is_prefix)) continue;
    if (dropped_ != nullptr && says_nothing(member.value)) {
      dropped_->insert(&member);
      continue;
    }
    const std::string quoted = in_quotes(key);  // escapes what a terminal should not see
    const std::string printable = quoted.substr(1, quoted.size() - 2);
    std::string hint = hint_ ? hint_(key) : "";
    if (hint.empty()) {
      std::vector<std::string_view> names;
      for (const HfKey& known : known_) names.push_back(known.name);
      hint = name_hint(key, names);
    }
    collect(faults, [&] {
      throw ConfigError(fmt::format("{} = {}: unknown key, which may change what the model computes; remove it if it does not{}",
                                    path(printable), value_text(&member.value), hint));
    });
  }
  if (!missing_.empty()) collect(faults, [&] { throw ConfigError(missing_); });
  if (!faults.empty()) throw ConfigError(faults);
}

}  // namespace trident
