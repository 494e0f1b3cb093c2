// Rows and columns, made once: text for people, a part of a page (report_page.h), and of JSON objects the same rows as CSV.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/json_reader.h"

namespace trident {

struct Column {
  std::string title;
  bool words = false;     // they begin at the left; numbers end at the right
  std::size_t width = 0;  // of text, at least
};

struct Table {
  std::string title;
  std::vector<Column> columns;
  // With their digits and units. A short row ends in words that run over the columns which it lacks.
  std::vector<std::vector<std::string>> rows = {};
  std::size_t indent = 0, gap = 2;  // of text: spaces before a line and between columns
  bool folded = false;              // on pages it is shown when its title is clicked
  std::size_t keys = 1;             // first columns, which name a row

  bool has_titles() const;  // or columns without any
};

// A line of titles where there are any, and one for each row; the table's own title is for pages. Where a line would be longer
// than `columns`, cells of the widest column of words take several lines, and where that does not do, columns stand in groups below
// each other, each beside the keys.
std::string to_text(const Table& table, std::size_t columns = std::string::npos);

// A first line of names, in the order in which rows have them, and a line for each row, which is an object: members of objects
// within it are joined by '_', what a row lacks and null are empty. RFC 4180.
std::string to_csv(const JsonValue::Array& rows);

// The same a row at a time, for rows that are not held together: every row is noted before the first line is made.
class CsvColumns {
 public:
  void note(const JsonValue& row);
  std::string header() const;
  std::string line(const JsonValue& row) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace trident
