#include "core/printable.h"

#include "core/utf8.h"

namespace trident {

std::string on_one_line(std::string_view text) {
  std::string well_formed, line;
  replace_ill_formed(text, &well_formed);
  for (std::string_view rest = well_formed; !rest.empty();) {
    const CodePoint c = code_point_at(rest, 0);
    if (is_control(c.value)) line += ' ';
    else line += rest.substr(0, c.size);
    rest.remove_prefix(c.size);
  }
  return line;
}

}  // namespace trident
