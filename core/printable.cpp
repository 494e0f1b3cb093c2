#include "core/printable.h"

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

}  // namespace trident
