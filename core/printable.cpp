#include "core/printable.h"

#include <algorithm>

#include "core/utf8.h"

namespace trident {

namespace {

std::string without_controls(std::string_view text, std::string_view in_place, std::string_view kept) {
  std::string well_formed, shown;
  replace_ill_formed(text, &well_formed);
  for (std::string_view rest = well_formed; !rest.empty();) {
    const CodePoint c = code_point_at(rest, 0);
    if (rest.starts_with("\r\n") && kept.find('\n') != kept.npos) {
      shown += "\r\n";
      rest.remove_prefix(2);
      continue;
    }
    shown += is_control(c.value) && kept.find(rest[0]) == kept.npos ? in_place : rest.substr(0, c.size);
    rest.remove_prefix(c.size);
  }
  return shown;
}

}  // namespace

std::string on_one_line(std::string_view text) { return without_controls(text, " ", ""); }

std::string on_lines(std::string_view text) { return without_controls(text, "\xEF\xBF\xBD", "\n\t"); }

std::string folded_between_words(std::string_view text, std::size_t indent, std::size_t columns) {
  std::string out, line;
  bool begins = true;  // what comes next stands at the line's beginning
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const bool has_words = line.find_first_not_of(' ') != line.npos;
    if (has_words && line.size() + 1 + word.size() > columns) {
      out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
      line = std::string(indent, ' ');
      begins = true;
    }
    line += begins ? "" : " ";
    line += word;
    begins = begins && has_words && word.empty();
  }
  return out + line;
}

}  // namespace trident
