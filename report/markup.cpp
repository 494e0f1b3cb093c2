#include "report/markup.h"

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
