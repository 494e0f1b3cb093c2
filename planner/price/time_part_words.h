// The names of the parts of a step: one table for reports, tables, JSON and sentences.
#pragma once

#include <string_view>

#include "planner/price/step_price.h"

namespace trident {

struct TimePartWords {
  std::string_view name;     // to_string(): of tables and JSON, "tp"
  std::string_view title;    // of pictures, "tensor parallel"
  std::string_view meaning;  // beside a number
  std::string_view cause;    // "most of it by ...", "... s more are ..."
};
const TimePartWords& part_words(TimePart part);

}  // namespace trident
