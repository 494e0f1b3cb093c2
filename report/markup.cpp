#include "report/markup.h"

#include <fmt/core.h>

#include "core/number_text.h"
#include "core/printable.h"
#include "core/utf8.h"

namespace trident {

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : on_one_line(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string beginning_of(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  const std::string_view beginning = text.substr(0, most_bytes);
  // Where the cut goes through a character, its first bytes are left out too; what is no UTF-8 is cut where it is.
  std::size_t end = beginning.size();
  while (end + 4 > beginning.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return fmt::format("{}... ({} bytes)", beginning.substr(0, end), with_commas(std::ssize(text)));
}

// The three stand in strings alone, where an escape means the same.
std::string script_json(const JsonValue& value) {
  std::string out;
  std::string text;
  replace_ill_formed(to_json_text(value), &text);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = std::string_view(text).substr(at);
    if (rest.starts_with("\u2028") || rest.starts_with("\u2029")) {
      out += rest.starts_with("\u2028") ? "\\u2028" : "\\u2029";
      at += 2;
    } else if (text[at] == '<' || text[at] == '>' || text[at] == '&') {
      out += text[at] == '<' ? "\\u003c" : text[at] == '>' ? "\\u003e" : "\\u0026";
    } else {
      out += text[at];
    }
  }
  return out;
}

}  // namespace trident
