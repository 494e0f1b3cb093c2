#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/function_ref.h"

namespace trident {
namespace {

std::string csv_field(const JsonValue& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return to_json_text(value);
  const std::string& text = value.as_string();
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

// Calls take() with each member of {"a": 1, "b_c": 2} for {"a": 1, "b": {"c": 2}}.
void for_each_field(const JsonValue& row, FunctionRef<void(const std::string& name, const JsonValue& value)> take,
                    const std::string& before = "") {
  for (const JsonMember& member : row.members()) {
    if (member.value.is_object()) for_each_field(member.value, take, before + member.key + '_');
    else take(before + member.key, member.value);
  }
}

}  // namespace

bool Table::has_titles() const {
  return std::ranges::any_of(columns, [](const Column& column) { return !column.title.empty(); });
}

std::string to_text(const Table& table) {
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) widths.push_back(std::max(column.width, column.title.size()));
  for (const std::vector<std::string>& row : table.rows)
    for (std::size_t c = 0; c < row.size(); ++c)
      if (c + 1 < row.size() || row.size() == widths.size()) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  const auto add_line = [&](auto cell, std::size_t cells) {
    std::string line(table.indent, ' ');
    for (std::size_t c = 0; c < cells; ++c) {
      const bool runs_over = c + 1 == cells && cells < widths.size();
      const std::string& content = cell(c);
      const std::string fill(runs_over ? 0 : widths[c] - content.size(), ' ');
      if (c > 0) line.append(table.gap, ' ');
      line += runs_over || table.columns[c].words ? content + fill : fill + content;
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  };
  if (table.has_titles())
    add_line([&](std::size_t c) -> const std::string& { return table.columns[c].title; }, widths.size());
  for (const std::vector<std::string>& row : table.rows)
    add_line([&](std::size_t c) -> const std::string& { return row[c]; }, row.size());
  return text;
}

std::string to_text(const Table& table, std::size_t columns) {
  std::string text = to_text(table);
  std::size_t longest = 0;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    longest = std::max(longest, end - begin);
  if (longest <= columns) return text;
  text.clear();
  for (const std::vector<std::string>& row : table.rows) {
    Table block{"", {{"", true}, {"", true}}, {}, 2};
    for (std::size_t c = 1; c < row.size(); ++c)
      if (!row[c].empty()) block.rows.push_back({table.columns[c].title, row[c]});
    text += row.front() + '\n' + to_text(block);
  }
  return text;
}

std::string to_csv(const JsonValue::Array& rows) {
  CsvColumns columns;
  for (const JsonValue& row : rows) columns.note(row);
  std::string text = columns.header();
  for (const JsonValue& row : rows) text += columns.line(row);
  return text;
}

void CsvColumns::note(const JsonValue& row) {
  std::size_t next = 0;  // most rows have the names of the row before, in that order
  for_each_field(row, [&](const std::string& name, const JsonValue&) {
    if (next < names_.size() && names_[next] == name) {
      ++next;
      return;
    }
    const auto found = std::ranges::find(names_, name);
    next = static_cast<std::size_t>(found - names_.begin()) + 1;
    if (found == names_.end()) names_.push_back(name);
  });
}

std::string CsvColumns::header() const {
  std::string text;
  for (const std::string& name : names_) text += fmt::format("{}{}", text.empty() ? "" : ",", csv_field(JsonValue(name)));
  return text + "\r\n";
}

std::string CsvColumns::line(const JsonValue& row) const {
  std::vector<std::string> fields(names_.size());
  std::size_t next = 0;
  for_each_field(row, [&](const std::string& name, const JsonValue& value) {
    if (next == names_.size() || names_[next] != name)
      next = static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin());
    if (next < names_.size()) fields[next++] = csv_field(value);
  });
  return fmt::format("{}\r\n", fmt::join(fields, ","));
}

}  // namespace trident
