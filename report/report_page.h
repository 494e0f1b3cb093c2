// A report as one HTML file that needs nothing but itself: no network, no other file, no script to be read (tables, numbers and
// bars are there without; charts and timelines are drawn by scripts inside it). For pages 400 pixels wide and wider, light and dark
// as the reader's system says. All text of the values is escaped.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "report/plot.h"
#include "report/table.h"
#include "report/timeline_data.h"

namespace trident {

struct Paragraph {
  std::string text;
};

// Numbers that are read first, each in a box: what, how much, and in small letters what is to be known of it.
struct KeyNumbers {
  struct Number {
    std::string name, value, remark;
  };
  std::vector<Number> numbers;
};

struct BulletList {
  std::vector<std::string> items;
};

// A timeline as timeline_json() had it, read back from a file.
struct DrawnTimeline {
  std::string title;
  JsonValue data;
};

using ReportBlock = std::variant<Paragraph, KeyNumbers, Table, BulletList, StackedBars, LinePlot, Timeline, DrawnTimeline>;

struct ReportSection {
  std::string title;
  std::vector<ReportBlock> blocks;
};

struct ReportPage {
  std::string title, subtitle;
  std::vector<ReportSection> sections;
  std::string made_by = {};  // at the end, small; "": nothing
  int reload_seconds = 0;  // the page loads itself again; 0: never
  // The document is no larger: blocks that do not fit are left out, and named at its beginning. 0: no bound.
  std::size_t most_bytes = 0;
};

// Throws InternalError where a table's row has more cells than there are columns, or a bar has not a value for each part.
std::string to_html(const ReportPage& page);

}  // namespace trident
