#include "import/text_limits.h"

#include <algorithm>

#include "core/check.h"
#include "core/utf8.h"

namespace trident {

void refuse_at(std::string_view source, int line, int column, std::string_view why) {
  throw ConfigError(fmt::format("{}:{}:{}: {}", source, line, column, why));
}

void check_foreign_text(std::string_view text, std::string_view source) {
  if (text.size() > kMaxForeignBytes)
    throw ConfigError(fmt::format("{}: more than 1 MiB; give the configuration alone", source));
  const auto is_foreign = [](unsigned char c) { return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F; };
  const std::size_t well_formed = valid_prefix(text);
  const std::size_t at = static_cast<std::size_t>(
      std::find_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(well_formed), is_foreign) - text.begin());
  if (at == text.size()) return;
  const std::string_view before = text.substr(0, at);
  const std::size_t line_end = before.rfind('\n');  // npos + 1 is 0
  refuse_at(source, static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1, static_cast<int>(at - line_end),
            fmt::format("the byte 0x{:02X} {}", static_cast<unsigned char>(text[at]),
                        at < well_formed ? "is a control character" : "is not UTF-8"));
}

bool is_listed(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    const std::string_view one = words.substr(0, words.find(' '));
    if (one == word) return true;
    words.remove_prefix(std::min(words.size(), one.size() + 1));
  }
  return false;
}

void ForeignLimits::add(std::size_t bytes, int depth, int line, int column) {
  if (depth > kMaxForeignDepth) refuse_at(source_, line, column, fmt::format("nested deeper than {} levels", kMaxForeignDepth));
  if (++values_ > kMaxForeignValues)
    refuse_at(source_, line, column, fmt::format("more than {} values, counted where aliases stand", kMaxForeignValues));
  if ((bytes_ += bytes) > kMaxForeignBytes)
    refuse_at(source_, line, column, fmt::format("more than {} bytes of text, counted where aliases stand", kMaxForeignBytes));
}

}  // namespace trident
