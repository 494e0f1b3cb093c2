#include "planner/published/run_fields.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace trident {
namespace {

constexpr std::array<std::string_view, 5> kGroups{"model", "cluster", "parallel", "batch", "stack"};
constexpr double kMost = 1e8;

bool is_group(std::string_view key) { return std::find(kGroups.begin(), kGroups.end(), key) != kGroups.end(); }

// Names and counts that follow from the rest; what positions are makes no difference to a price.
bool only_describes(std::string_view path) {
  return path == "id" || path == "kind" || path == "model.name" || path == "model.positions" || path.starts_with("model.params");
}

// "stack": "fsdp" is short for "stack": {"framework": "fsdp"}.
bool is_name(std::string_view group, const JsonValue& value) { return group == "stack" && value.is_string(); }

std::string path_of(std::string_view group, std::string_view key) {
  return group.empty() ? std::string(key) : fmt::format("{}.{}", group, key);
}

}  // namespace

std::string in_small_letters(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

RunFields::RunFields(const JsonValue& row) : row_(row) {
  for (const std::string_view group : kGroups)
    if (const JsonValue* value = row.find(group); value && !value->is_null() && !value->is_object() && !is_name(group, *value))
      throw UnsupportedCase(fmt::format("{} is {}; write an object", group, describe(value->kind())));
}

const JsonValue* RunFields::find(std::string_view group, std::string_view key) {
  read_.insert(path_of(group, key));
  const JsonValue* value = group.empty() ? &row_ : row_.find(group);
  if (value && is_name(group, *value)) return key == "framework" ? value : nullptr;
  if (value) value = value->find(key);
  return value && !value->is_null() ? value : nullptr;
}

bool RunFields::is_null(std::string_view group, std::string_view key) const {
  const JsonValue* value = group.empty() ? &row_ : row_.find(group);
  if (value) value = value->find(key);
  return value && value->is_null();
}

void RunFields::cannot_be_priced(std::string_view group, std::string_view key, std::string_view wanted) {
  const JsonValue* value = find(group, key);
  if (!value) throw UnsupportedCase(fmt::format("{} is missing: must be {}", path_of(group, key), wanted));
  const std::string said = value->is_string() ? in_quotes(value->as_string()) : to_json_text(*value).substr(0, 80);
  throw UnsupportedCase(fmt::format("{} = {}: must be {}", path_of(group, key), said, wanted));
}

std::optional<double> RunFields::said_number(std::string_view group, std::string_view key) {
  const JsonValue* value = find(group, key);
  if (!value) return std::nullopt;
  const double number = value->is_number() ? value->as_number() : 0;
  if (!(number >= 1 && number <= kMost) || std::floor(number) != number)
    cannot_be_priced(group, key, fmt::format("a whole number from 1 to {:.0f}", kMost));
  return number;
}

double RunFields::number(std::string_view group, std::string_view key) {
  const std::optional<double> said = said_number(group, key);
  if (!said) cannot_be_priced(group, key, fmt::format("a whole number from 1 to {:.0f}", kMost));
  return *said;
}

double RunFields::number_or(std::string_view group, std::string_view key, double otherwise) {
  if (const std::optional<double> said = said_number(group, key)) return *said;
  assume(path_of(group, key), exact_number(otherwise));
  return otherwise;
}

std::optional<std::string> RunFields::said_text(std::string_view group, std::string_view key) {
  const JsonValue* value = find(group, key);
  if (!value) return std::nullopt;
  if (!value->is_string()) cannot_be_priced(group, key, "a text");
  std::string text = in_small_letters(value->as_string());
  const std::size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  if (begin == text.npos) cannot_be_priced(group, key, "a text that is not empty");
  return text.substr(begin, end - begin + 1);
}

std::optional<bool> RunFields::said_flag(std::string_view group, std::string_view key) {
  const JsonValue* value = find(group, key);
  if (!value) return std::nullopt;
  if (!value->is_bool()) cannot_be_priced(group, key, "true or false");
  return value->as_bool();
}

std::vector<std::string> RunFields::not_read() const {
  std::vector<std::string> paths;
  const auto look_at = [&](std::string_view group, const JsonMember& member) {
    const std::string path = path_of(group, member.key);
    if (!member.value.is_null() && !read_.contains(path) && !only_describes(path)) paths.push_back(path);
  };
  for (const JsonMember& member : row_.members()) {
    if (!is_group(member.key)) look_at("", member);
    else if (member.value.is_object())
      for (const JsonMember& inner : member.value.members()) look_at(member.key, inner);
  }
  return paths;
}

}  // namespace trident
