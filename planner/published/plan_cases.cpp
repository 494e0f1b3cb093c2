#include "planner/published/plan_cases.h"

#include <ostream>

#include "core/printable.h"
#include "planner/published/case_answers.h"

namespace trident {
namespace {

// "bubble_rate 0.25, assumed {...}".
std::string in_words(const JsonValue& answer) {
  std::string line;
  for (const JsonMember& member : answer.members()) {
    const bool is_text = member.value.is_string();
    const std::string value = is_text ? member.value.as_string() : to_json_text(member.value);
    if (member.key == "id")
      line = (member.value.is_null() ? "without a name" : value) + ": ";
    else
      line += (line.ends_with(": ") ? "" : ", ") + member.key + ' ' + value;
  }
  return line;
}

}  // namespace

void answer_cases(const std::string& path, const std::string& folder, bool json, std::ostream& out) {
  const PriceBook book = folder.empty() ? shipped_price_book() : read_price_book(folder);
  for (const CaseRow& row : read_case_rows(path)) {
    const JsonValue answer = answer_case(row, book);
    out << (json ? to_json_text(answer) : on_one_line(in_words(answer))) << '\n';
  }
}

}  // namespace trident
