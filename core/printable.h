// Foreign text on terminals and in lines: what moves the cursor, changes colours, ends lines or turns the direction of writing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trident {

// Control characters (C0, DEL, C1), the invisible marks and direction marks of Unicode's general punctuation, line and paragraph
// separators, the byte order mark.
constexpr bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF;
}

// `text` with a space for each control character and U+FFFD for what is not UTF-8: one line that a terminal only shows.
std::string on_one_line(std::string_view text);

// `text` with U+FFFD for each control character but line ends (also those of CSV, CR LF) and tabs, and for what is not UTF-8.
std::string on_lines(std::string_view text);

// `text` broken between words so that no line has more than `columns` bytes, but for longer words; lines behind the first begin
// with `indent` spaces.
std::string folded_between_words(std::string_view text, std::size_t indent, std::size_t columns);

}  // namespace trident
