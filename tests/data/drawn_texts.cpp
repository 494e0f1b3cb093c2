#include "tests/data/drawn_texts.h"

#include <fmt/core.h>

#include <cstdint>

namespace trident::test {

std::string utf8(char32_t c) {
  std::string s;
  const auto put = [&](char32_t byte) { s.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c), s;
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 63)), s;
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63)), s;
  return put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63)), s;
}

std::vector<std::string> drawn_texts(const std::vector<std::string>& atoms, std::size_t count) {
  std::uint64_t state = 1;
  const auto draw = [&](std::uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  std::vector<std::string> texts(count);
  for (std::string& text : texts) {
    for (std::uint64_t parts = 1 + draw(24); parts > 0; --parts) {
      const std::uint64_t kind = draw(16);
      if (kind > 1) {
        text += atoms[draw(atoms.size())];
        continue;
      }
      const auto c = static_cast<char32_t>(draw(kind == 0 ? 0x3400 : 0x110000));
      text += c >= 0xD800 && c < 0xE000 ? "?" : utf8(c);
    }
  }
  return texts;
}

std::string Fnv::text() const { return fmt::format("{:016x}", state_); }

}  // namespace trident::test
