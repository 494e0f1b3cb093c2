#include "train/config/layout_text.h"

#include <cctype>
#include <cstdint>
#include <string>

#include "core/json_reader.h"

namespace trident {

LayoutDegrees parse_layout(std::string_view text, std::string_view where) {
  const auto refuse = [&](std::string_view why) {
    throw ConfigError(fmt::format("{}parallel = {}: {}; write it like \"2DP x 4PP x 4TP\"", where, in_quotes(text), why));
  };
  LayoutDegrees degrees;
  std::string seen;
  std::size_t at = 0;
  const auto is_digit = [&] { return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; };
  const auto skip_joints = [&] {
    while (at < text.size()) {
      const bool times_sign = text.substr(at, 2) == "\xc3\x97";
      if (!times_sign && std::string_view(" xX*,").find(text[at]) == std::string_view::npos) return;
      at += times_sign ? 2 : 1;
    }
  };
  for (skip_joints(); at < text.size(); skip_joints()) {
    std::int64_t degree = 0;
    const std::size_t begin = at;
    for (; is_digit() && at - begin < 7; ++at) degree = degree * 10 + (text[at] - '0');
    if (at == begin) refuse("expected a number before each axis");
    while (at < text.size() && text[at] == ' ') ++at;
    const char axis = at + 1 < text.size() ? static_cast<char>(std::toupper(static_cast<unsigned char>(text[at]))) : '\0';
    std::int64_t* slot = axis == 'D' ? &degrees.data : axis == 'P' ? &degrees.pipeline : axis == 'T' ? &degrees.tensor
                         : axis == 'C' ? &degrees.context : nullptr;
    if (slot == nullptr || std::toupper(static_cast<unsigned char>(text[at + 1])) != 'P')
      refuse("expected TP, PP, DP or CP after each number");
    if (seen.find(axis) != std::string::npos) refuse(fmt::format("{}P is there twice", axis));
    seen += axis;
    *slot = degree;
    at += 2;
  }
  if (seen.empty()) refuse("no axis in it");
  return degrees;
}

}  // namespace trident
