// UTF-8: decoding, validation, replacement of ill-formed bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trident {

struct CodePoint {
  char32_t value;
  std::size_t size;  // bytes
};

// The code point that starts at text[at]. `text` must be well-formed (see valid_prefix) and `at` must be at a boundary.
inline CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// Appends the code point, which must be none of the surrogates.
inline void append_utf8(std::string& out, char32_t c) {
  const auto byte = [&](char32_t value) { out += static_cast<char>(value); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) byte(0xC0 | c >> 6);
  else if (c < 0x10000) byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F));
  else byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F));
  byte(0x80 | (c & 0x3F));
}

// Length of the longest well-formed prefix that ends at a code point (Unicode 16, table 3-7: no surrogates, no overlong forms).
std::size_t valid_prefix(std::string_view text);

// Writes `text` to *out with each maximal ill-formed subsequence replaced by U+FFFD; returns the number of replacements.
std::int64_t replace_ill_formed(std::string_view text, std::string* out);

}  // namespace trident
