#include "data/tokenizer/gpt2_scanner.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "core/utf8.h"
#include "data/tokenizer/unicode_classes.inc"

namespace trident {

namespace {

constexpr CharClass table_class(char32_t c) {
  const unsigned packed = kUnicodeClasses[kUnicodeBlock[c >> 8] * 64u + ((c & 255u) >> 2)];
  return static_cast<CharClass>(packed >> ((c & 3u) * 2) & 3u);
}

constexpr std::array<CharClass, 128> kAsciiClass = [] {
  std::array<CharClass, 128> classes{};
  for (char32_t c = 0; c < 128; ++c) classes[c] = table_class(c);
  return classes;
}();

struct Classified {
  CharClass char_class;
  std::size_t size;
};

Classified classify(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 128) return {kAsciiClass[byte], 1};
  const CodePoint c = code_point_at(text, at);
  return {table_class(c.value), c.size};
}

std::size_t run_end(std::string_view text, std::size_t at, CharClass wanted) {
  while (at < text.size()) {
    const Classified c = classify(text, at);
    if (c.char_class != wanted) break;
    at += c.size;
  }
  return at;
}

// Length of the contraction at text[begin] == '\'', or 0.
std::size_t contraction(std::string_view text, std::size_t begin) {
  const std::string_view rest = text.substr(begin + 1, 2);
  if (rest.empty()) return 0;
  if (rest[0] == 's' || rest[0] == 't' || rest[0] == 'm' || rest[0] == 'd') return 2;
  return rest == "re" || rest == "ve" || rest == "ll" ? 3 : 0;
}

// A run of whitespace before a word leaves its last character to the word; at the end of the text it is one piece.
std::size_t whitespace_end(std::string_view text, std::size_t begin) {
  std::size_t at = begin, last = begin;
  while (at < text.size()) {
    const Classified c = classify(text, at);
    if (c.char_class != CharClass::kSpace) return last > begin ? last : at;
    last = at;
    at += c.size;
  }
  return at;
}

}  // namespace

CharClass char_class(char32_t code_point) { return code_point < 0x110000 ? table_class(code_point) : CharClass::kOther; }

bool is_word_character(char32_t code_point) {
  return (std::ranges::upper_bound(kWordBounds, code_point) - std::begin(kWordBounds)) % 2 == 1;
}

std::size_t gpt2_piece_end(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction(text, begin); length > 0) return begin + length;
  }
  const Classified first = classify(text, begin);
  if (first.char_class != CharClass::kSpace) return run_end(text, begin + first.size, first.char_class);
  if (text[begin] == ' ' && begin + 1 < text.size()) {
    const Classified second = classify(text, begin + 1);
    if (second.char_class != CharClass::kSpace) return run_end(text, begin + 1 + second.size, second.char_class);
  }
  return whitespace_end(text, begin);
}

}  // namespace trident
