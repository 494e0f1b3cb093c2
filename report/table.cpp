#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/function_ref.h"
#include "core/printable.h"

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

namespace {

std::vector<std::string> lines_of(const std::string& cell, std::size_t columns) {
  std::vector<std::string> lines;
  std::istringstream folded(folded_between_words(cell, 0, columns));
  for (std::string line; std::getline(folded, line);) lines.push_back(line);
  return lines;
}

// Writes some of a table's columns, which have these widths. A cell takes several lines where it is longer.
class TextOfColumns {
 public:
  TextOfColumns(const Table& table, const std::vector<std::size_t>& widths, std::size_t columns)
      : table_(table), widths_(widths), columns_(columns) {}

  void write(const std::vector<std::string>& row, const std::vector<std::size_t>& shown) {
    std::vector<std::string> lines(1);
    std::size_t at = table_.indent;
    bool is_over = false;  // a word is longer than its column: the cells behind it stand below
    for (const std::size_t c : shown) {
      if (c >= row.size()) break;
      if (std::exchange(is_over, false)) end(&lines);
      const bool runs_over = c + 1 == row.size() && row.size() < widths_.size();
      const std::size_t room = std::max<std::size_t>(1, columns_ - std::min(at, columns_ - 1));
      const std::size_t width = runs_over ? room : std::min(widths_[c], room);
      const std::vector<std::string> content = lines_of(row[c], width);
      lines.resize(std::max(lines.size(), content.size()));
      for (std::size_t i = 0; i < content.size(); ++i) {
        const bool left = runs_over || table_.columns[c].words;
        lines[i].resize(at, ' ');
        lines[i] += left ? content[i] : std::string(width - std::min(width, content[i].size()), ' ') + content[i];
        is_over = is_over || content[i].size() > width;
      }
      at += width + (width > 0 ? table_.gap : 0);
    }
    end(&lines);
  }

  std::string take() { return std::move(text_); }

 private:
  void end(std::vector<std::string>* lines) {
    for (const std::string& line : *lines) text_ += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    lines->clear();
  }

  const Table& table_;
  const std::vector<std::size_t>& widths_;
  std::size_t columns_;
  std::string text_;
};

}  // namespace

std::string to_text(const Table& table, std::size_t columns) {
  constexpr std::size_t kLeastWords = 20;  // of a column whose cells are folded
  const std::size_t all = table.columns.size();
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) widths.push_back(std::max(column.width, column.title.size()));
  for (const std::vector<std::string>& row : table.rows)
    for (std::size_t c = 0; c < row.size(); ++c)
      if (c + 1 < row.size() || row.size() == all) widths[c] = std::max(widths[c], row[c].size());
  const auto line_of = [&](std::size_t begin, std::size_t end) {  // with the keys before it
    std::size_t length = table.indent;
    for (std::size_t c = 0; c < end; ++c)
      if (c < table.keys || c >= begin) length += widths[c] + (widths[c] > 0 && c > 0 ? table.gap : 0);
    return length;
  };
  if (line_of(0, all) > columns)
    for (std::size_t c = 0; c < std::min(all, table.keys); ++c)
      widths[c] = std::min(widths[c], columns - std::min(columns / 2, kLeastWords));
  if (const std::size_t whole = line_of(0, all); whole > columns) {
    std::size_t longest = table.keys;
    for (std::size_t c = table.keys; c < all; ++c)
      if (table.columns[c].words && (!table.columns[longest].words || widths[c] > widths[longest])) longest = c;
    const std::size_t over = whole - columns;
    if (longest < all && table.columns[longest].words && widths[longest] >= over + kLeastWords) widths[longest] -= over;
  }
  TextOfColumns text(table, widths, columns);
  for (std::size_t begin = 0, end; begin < all; begin = end) {
    std::vector<std::size_t> shown;
    const std::size_t first = std::max(begin, table.keys);
    for (end = begin; end < all && (end <= first || line_of(begin, end + 1) <= columns); ++end) {}
    for (std::size_t c = 0; c < end; ++c)
      if (c < table.keys || c >= begin) shown.push_back(c);
    if (begin > 0) text.write({""}, {0});
    if (table.has_titles()) {
      std::vector<std::string> titles;
      for (const Column& column : table.columns) titles.push_back(column.title);
      text.write(titles, shown);
    }
    for (const std::vector<std::string>& row : table.rows)
      if (begin == 0 || row.size() > begin) text.write(row, shown);
  }
  return text.take();
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
