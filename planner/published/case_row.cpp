#include "planner/published/case_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/file_io.h"
#include "core/json_scanner.h"

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

bool is_scalar(const JsonValue& value) { return !value.is_array() && !value.is_object(); }

CaseRow case_row(JsonValue row, std::string_view where) {
  CaseRow result;
  const auto refuse = [&](const std::string& why) {
    result.refused = fmt::format("{}:{}: {}", where, row.line(), why);
    return result;
  };
  if (!row.is_object()) return refuse(fmt::format("this row is {}; write an object", describe(row.kind())));
  JsonValue::Object kept;
  for (JsonMember& member : row.members())
    if (!is_one_of(member.key, kAnswers) && !is_one_of(member.key, kOrigins)) kept.push_back(std::move(member));
  result.fields = JsonValue(std::move(kept));
  const JsonValue* id = result.fields.find("id");
  if (id && is_scalar(*id)) result.id = *id;
  if (!id || id->is_null()) return refuse("this row has no name; give it one as \"id\"");
  if (!id->is_string()) return refuse(fmt::format("id is {}; write a text", describe(id->kind())));
  if (id->as_string().empty()) return refuse("id is empty; write a name");
  const JsonValue* kind = result.fields.find("kind");
  if (!kind || kind->is_null()) return result;
  if (!kind->is_string()) return refuse(fmt::format("kind is {}; write the name of a kind of case", describe(kind->kind())));
  result.kind = kind->as_string();
  return result;
}

constexpr std::array<std::string_view, 3> kTables{"cases", "entries", "rows"};
constexpr JsonRules kRules{
    .comments = false, .max_bytes = std::size_t{256} << 20, .max_depth = 64, .blame = ExitCode::kData};

// The lines of `text` that are not blank.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

bool is_table(const JsonValue& value) {
  return std::any_of(kTables.begin(), kTables.end(), [&](std::string_view key) { return value.find(key) != nullptr; });
}

// A row in each line that is not blank. Nothing: the text is no such table, because its first line is no row; where that is the
// only one it must say that it is, since any object may stand in one line.
std::optional<std::vector<CaseRow>> rows_of_lines(std::string_view text, std::string_view where) {
  const std::vector<std::string_view> lines = lines_of(text);
  const auto count = std::count_if(lines.begin(), lines.end(), [](std::string_view line) { return !is_blank(line); });
  if (count == 0) return std::nullopt;
  std::vector<CaseRow> rows;
  std::size_t values_left = kRules.max_values + text.size() / 16;  // of all rows, which are kept together
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (is_blank(lines[i])) continue;
    const std::string at = fmt::format("{}: line {}", where, i + 1);
    try {
      JsonScanner scanner(lines[i], at, kRules);
      JsonValue row = scanner.value(values_left);
      scanner.end();
      if (rows.empty() && (!row.is_object() || is_table(row))) return std::nullopt;
      if (count == 1 && !row.find("id") && !row.find("kind")) return std::nullopt;
      row.set_position(static_cast<int>(i + 1), 1);
      rows.push_back(case_row(std::move(row), where));
    } catch (const DataError& error) {
      if (rows.empty()) return std::nullopt;
      CaseRow bad;
      bad.refused = error.what();
      rows.push_back(std::move(bad));
    }
  }
  return rows;
}

}  // namespace

std::vector<CaseRow> case_rows(JsonValue table, std::string_view where) {
  JsonValue* rows = &table;
  std::string found;
  for (const std::string_view key : kTables) {
    JsonValue* of = table.find(key);
    if (!of) continue;
    if (!found.empty()) throw DataError(fmt::format("{}: rows as \"{}\" and as \"{}\"; keep one of them", where, found, key));
    rows = of;
    found = key;
  }
  if (!rows->is_array())
    throw DataError(fmt::format("{}: {} is {}, no rows; write an array of them, an object with one as \"cases\", \"entries\" or "
                                "\"rows\", or an object in each line",
                                where, found.empty() ? "this" : in_quotes(found), describe(rows->kind())));
  std::vector<CaseRow> result;
  result.reserve(rows->items().size());
  for (const JsonValue& row : rows->items()) result.push_back(case_row(row, where));
  return result;
}

std::vector<CaseRow> case_rows_of_text(std::string_view text, std::string_view where) {
  if (auto rows = rows_of_lines(text, where)) return std::move(*rows);
  return case_rows(parse_json(text, where, kRules), where);
}

std::vector<CaseRow> read_case_rows(const std::string& path) {
  const RandomAccessFile file(path);
  if (file.size() > static_cast<std::int64_t>(kRules.max_bytes))  // before anything of it is read
    throw DataError(fmt::format("{}: {} bytes, the limit of a table is {}; divide it", path, file.size(), kRules.max_bytes));
  return case_rows_of_text(file.text(0, file.size()), path);
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
