#include "plan/case_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace trident {
namespace {

constexpr std::array<std::string_view, 8> kAnswers{"measured",      "derived", "expected", "tolerance",
                                                   "tolerance_abs", "notes",   "note",     "our_event_model"};
constexpr std::array<std::string_view, 8> kOrigins{"source", "ref", "provenance", "confidence", "formula", "rule", "split", "tags"};
constexpr double kLargestExact = 9007199254740992.0;  // 2^53

template <std::size_t N>
bool is_one_of(std::string_view key, const std::array<std::string_view, N>& keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

CaseRow case_row(const JsonValue& row, std::string_view where) {
  const std::string at = fmt::format("{}:{}", where, row.line());
  if (!row.is_object()) throw DataError(fmt::format("{}: this row is {}; write an object", at, describe(row.kind())));
  CaseRow result;
  JsonValue::Object kept;
  for (const JsonMember& member : row.members()) {
    if (is_one_of(member.key, kAnswers) || is_one_of(member.key, kOrigins)) continue;
    kept.push_back(member);
  }
  result.fields = JsonValue(std::move(kept));
  const JsonValue* id = result.fields.find("id");
  if (!id || !id->is_string() || id->as_string().empty())
    throw DataError(fmt::format("{}: this row has no name; give it one as \"id\"", at));
  result.id = id->as_string();
  const JsonValue* kind = result.fields.find("kind");
  if (!kind || kind->is_null()) return result;
  if (!kind->is_string())
    throw DataError(fmt::format("{}: kind is {}; write the name of a kind of case", at, describe(kind->kind())));
  result.kind = kind->as_string();
  return result;
}

}  // namespace

std::vector<CaseRow> case_rows(const JsonValue& table, std::string_view where) {
  const JsonValue* rows = &table;
  for (const std::string_view key : {"cases", "entries"})
    if (const JsonValue* of = table.find(key)) rows = of;
  if (!rows->is_array())
    throw DataError(fmt::format("{}: no rows; write an array of them, or an object with one as \"cases\" or \"entries\"", where));
  std::vector<CaseRow> result;
  for (const JsonValue& row : rows->items()) result.push_back(case_row(row, where));
  return result;
}

std::vector<CaseRow> read_case_rows(const std::string& path) {
  return case_rows(
      read_json_file(
          path,
          {.comments = JsonComments::kRefused, .max_bytes = std::size_t{64} << 20, .max_depth = 32, .blame = ExitCode::kData}),
      path);
}

CaseFields::CaseFields(const CaseRow& row, std::string_view name) : object_(row.fields.find(name)), name_(name) {
  if (!object_ || !object_->is_object()) throw UnsupportedCase(fmt::format("{} is missing", name));
}

const JsonValue* CaseFields::find(std::string_view key) const {
  const JsonValue* value = object_->find(key);
  return value && !value->is_null() ? value : nullptr;
}

const JsonValue& CaseFields::required(std::string_view key) const {
  const JsonValue* value = find(key);
  if (!value) throw UnsupportedCase(fmt::format("{}.{} is missing", name_, key));
  return *value;
}

void CaseFields::refuse(std::string_view key, std::string_view wanted) const {
  throw UnsupportedCase(fmt::format("{}.{} = {}: must be {}", name_, key, to_json_text(*find(key)), wanted));
}

double CaseFields::amount(std::string_view key) const {
  const JsonValue& value = required(key);
  if (!value.is_number() || !std::isfinite(value.as_number()) || value.as_number() < 0) refuse(key, "a number, at least 0");
  return value.as_number();
}

double CaseFields::positive(std::string_view key) const {
  const double value = amount(key);
  if (value == 0) refuse(key, "above 0");
  return value;
}

std::int64_t CaseFields::count(std::string_view key, std::int64_t most) const {
  const JsonValue& value = required(key);
  const double number = value.is_number() ? value.as_number() : 0;
  if (!(number >= 1 && number <= static_cast<double>(most) && number == std::floor(number)))
    refuse(key, fmt::format("a whole number from 1 to {}", most));
  return static_cast<std::int64_t>(number);
}

std::string CaseFields::text(std::string_view key) const {
  const JsonValue& value = required(key);
  if (!value.is_string()) refuse(key, "a text");
  return value.as_string();
}

bool CaseFields::flag(std::string_view key) const {
  const JsonValue& value = required(key);
  if (!value.is_bool()) refuse(key, "true or false");
  return value.as_bool();
}

double CaseFields::amount_or(std::string_view key, double fallback) {
  if (has(key)) return amount(key);
  assume(key, exact_number(fallback));
  return fallback;
}

std::int64_t CaseFields::count_or(std::string_view key, std::int64_t fallback, std::int64_t most) {
  if (has(key)) return count(key, most);
  assume(key, fallback);
  return fallback;
}

bool CaseFields::flag_or(std::string_view key, bool fallback) {
  if (has(key)) return flag(key);
  assume(key, fallback);
  return fallback;
}

JsonValue exact_number(double value) {
  if (value == std::floor(value) && std::abs(value) < kLargestExact) return JsonValue(static_cast<std::int64_t>(value));
  return JsonValue(value);
}

}  // namespace trident
