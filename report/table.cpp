#include "report/table.h"

#include <algorithm>
#include <utility>

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

// Makes {"a": 1, "b_c": 2} of {"a": 1, "b": {"c": 2}}.
JsonValue flat(const JsonValue& row) {
  JsonValue out;
  for (const JsonMember& member : row.members()) {
    if (!member.value.is_object()) out.set(member.key, member.value);
    else
      for (const JsonMember& inner : member.value.members()) out.set(member.key + '_' + inner.key, inner.value);
  }
  return out;
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

std::string to_csv(const JsonValue::Array& rows) {
  std::vector<std::string> names;
  JsonValue::Array flat_rows;
  for (const JsonValue& row : rows) {
    for (const JsonMember& member : flat_rows.emplace_back(flat(row)).members())
      if (std::ranges::find(names, member.key) == names.end()) names.push_back(member.key);
  }
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}{}", text.empty() ? "" : ",", csv_field(JsonValue(name)));
  text += "\r\n";
  for (const JsonValue& row : flat_rows) {
    for (const std::string& name : names) {
      const JsonValue* const value = row.find(name);
      text += fmt::format("{}{}", &name == &names.front() ? "" : ",", value == nullptr ? "" : csv_field(*value));
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace trident
