// The printable spelling of bytes in which files of byte-level tokenizers hold their tokens (Radford et al. 2019).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace trident {

// 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves, the other 68 bytes are U+0100, U+0101, ... in increasing order. Returns
// byte -> character.
inline constexpr std::array<char16_t, 256> kCharacterOfByte = [] {
  std::array<char16_t, 256> characters{};
  char16_t next = 0x100;
  for (char16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    characters[b] = printable ? b : next++;
  }
  return characters;
}();

// Character -> byte, -1 where a character stands for none.
inline constexpr std::array<std::int16_t, 0x144> kByteOfCharacter = [] {
  std::array<std::int16_t, 0x144> bytes{};
  for (auto& b : bytes) b = -1;
  for (std::int16_t b = 0; b < 256; ++b) bytes[kCharacterOfByte[static_cast<std::size_t>(b)]] = b;
  return bytes;
}();

// Appends the spelling of one byte.
inline void spell(unsigned char byte, std::string* out) { append_utf8(*out, kCharacterOfByte[byte]); }

// The bytes that a spelling stands for, appended to *out; false, and nothing is appended, where a character stands for no byte.
// `spelling` is well-formed UTF-8.
inline bool append_bytes_of_spelling(std::string_view spelling, std::string* out) {
  const std::size_t before = out->size();
  for (std::size_t at = 0; at < spelling.size();) {
    const CodePoint c = code_point_at(spelling, at);
    at += c.size;
    if (c.value >= kByteOfCharacter.size() || kByteOfCharacter[c.value] < 0) {
      out->resize(before);
      return false;
    }
    out->push_back(static_cast<char>(kByteOfCharacter[c.value]));
  }
  return true;
}

}  // namespace trident
