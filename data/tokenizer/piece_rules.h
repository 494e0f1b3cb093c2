// How the usual patterns cut text, written by hand: each rule gives the end of the piece that begins at a place. The texts of the
// patterns stand in piece_scanner.cpp.
//
// A rule reads through a Cursor (TextCursor; tests count what one reads). It reads no more than a few times what it takes, whatever
// the text is. Callers ask for places inside the text.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/utf8.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer/unicode.h"

namespace trident::rules {

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_(text) {}
  struct At {
    CategorySet set;  // the category of the code point
    std::size_t size;
  };
  std::size_t size() const { return text_.size(); }
  bool is(std::size_t at, char c) const { return at < text_.size() && text_[at] == c; }
  char32_t value(std::size_t at) const { return code_point_at(text_, at).value; }
  At at(std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 128) return {kAsciiSets[byte], 1};
    const CodePoint c = code_point_at(text_, at);
    return {CategorySet{1} << (unicode_properties(c.value) & 31u), c.size};
  }
  std::size_t run_end(std::size_t at, CategorySet set) const {
    while (at < text_.size()) {
      const At c = this->at(at);
      if ((c.set & set) == 0) break;
      at += c.size;
    }
    return at;
  }
  std::size_t ascii_end(std::size_t at) const {
    for (std::uint64_t word; at + sizeof word <= text_.size(); at += sizeof word) {
      std::memcpy(&word, text_.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) != 0) break;
    }
    while (at < text_.size() && static_cast<signed char>(text_[at]) >= 0) ++at;
    return at;
  }
  // The end of a run of ASCII letters, of both cases or lower ones: sixteen bytes at once, because few words are longer.
  template <bool kBothCases>
  std::size_t ascii_letters_end(std::size_t at) const {
    for (std::array<std::uint64_t, 2> words; at + sizeof words <= text_.size(); at += sizeof words) {
      std::memcpy(&words, text_.data() + at, sizeof words);
      const std::uint64_t first = no_letters<kBothCases>(words[0]), second = no_letters<kBothCases>(words[1]);
      const std::size_t in_second = sizeof first + static_cast<std::size_t>(std::countr_zero(second)) / 8;
      if ((first | second) != 0) return at + (first != 0 ? static_cast<std::size_t>(std::countr_zero(first)) / 8 : in_second);
    }
    while (at < text_.size() && is_letter<kBothCases>(text_[at])) ++at;
    return at;
  }
  // run_end() of a set to which these ASCII letters belong, and no other ASCII.
  template <bool kBothCases>
  std::size_t letters_end(std::size_t at, CategorySet set) const {
    while (true) {
      at = ascii_letters_end<kBothCases>(at);
      if (at == text_.size() || static_cast<signed char>(text_[at]) >= 0) return at;
      do {
        const At c = this->at(at);
        if ((c.set & set) == 0) return at;
        at += c.size;
      } while (at < text_.size() && static_cast<signed char>(text_[at]) < 0);
    }
  }

 private:
  // The highest bit of each byte that is no such letter, the first byte lowest.
  template <bool kBothCases>
  static std::uint64_t no_letters(std::uint64_t word) {
    constexpr std::uint64_t kOnes = 0x0101010101010101u, kHigh = 0x80 * kOnes;
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    const std::uint64_t low = (kBothCases ? word | 0x20 * kOnes : word) & ~kHigh;
    const std::uint64_t from_a = low + (0x80 - 'a') * kOnes, beyond_z = low + (0x7F - 'z') * kOnes;
    return (~from_a | beyond_z | word) & kHigh;
  }
  template <bool kBothCases>
  static bool is_letter(char c) {
    const auto letter = static_cast<unsigned char>((kBothCases ? c | 0x20 : c) - 'a');
    return letter < 26;
  }
  std::string_view text_;
};

using Piece = PieceScanner::Piece;

// 's|'t|'re|'ve|'m|'ll|'d at text[begin] == '\'', or `begin`. In any case U+017F is an s, too.
template <bool kAnyCase, class Cursor>
std::size_t contraction_end(const Cursor& text, std::size_t begin) {
  const auto is = [&](std::size_t at, char lower) {
    return text.is(at, lower) || (kAnyCase && text.is(at, static_cast<char>(lower - 32)));
  };
  for (const char c : {'s', 't', 'm', 'd'})
    if (is(begin + 1, c)) return begin + 2;
  if (is(begin + 1, 'l')) return is(begin + 2, 'l') ? begin + 3 : begin;
  if (is(begin + 1, 'r') || is(begin + 1, 'v')) return is(begin + 2, 'e') ? begin + 3 : begin;
  return kAnyCase && text.is(begin + 1, '\xC5') && text.is(begin + 2, '\xBF') ? begin + 3 : begin;
}

// Where white space begins, what it is cut by. Each leaves the last character of a run before a word to the word.
enum class Spaces {
  kPlain,          // \s+(?!\S)|\s+
  kLines,          // \s*[\r\n]+ before it
  kLinesButAtEnd,  // \s++$ before all: a run at the end of the text is one piece
};
template <Spaces kSpaces, class Cursor>
std::size_t white_space_end(const Cursor& text, std::size_t begin) {
  std::size_t at = begin, last = begin, line_end = begin;
  while (at < text.size()) {
    const auto c = text.at(at);
    if ((c.set & kWhiteSpace) == 0) break;
    last = at;
    at += c.size;
    if (kSpaces != Spaces::kPlain && (c.set & kLineEnds) != 0) line_end = at;
  }
  if (kSpaces == Spaces::kLinesButAtEnd && at == text.size()) return at;
  if (line_end > begin) return line_end;
  return at < text.size() && last > begin ? last : at;
}

template <int kMax, class Cursor>
std::size_t numbers_end(const Cursor& text, std::size_t at) {
  for (int count = 0; count < kMax && at < text.size(); ++count) {
    const auto c = text.at(at);
    if ((c.set & kNumbers) == 0) break;
    at += c.size;
  }
  return at;
}

// `set`+[\r\n]*, or [\r\n/]*.
template <bool kSlash, class Cursor>
std::size_t symbols_end(const Cursor& text, std::size_t at, CategorySet set) {
  at = text.run_end(at, set);
  while (text.is(at, '\n') || text.is(at, '\r') || (kSlash && text.is(at, '/'))) ++at;
  return at;
}

inline constexpr CategorySet kNeither = ~(kWhiteSpace | kLetters | kNumbers);  // [^\s\p{L}\p{N}]

struct Gpt2 {
  template <class Cursor>
  static Piece next(const Cursor& text, std::size_t begin) {
    if (text.is(begin, '\''))
      if (const std::size_t end = contraction_end<false>(text, begin); end > begin) return {end, true};
    const auto first = text.at(begin);
    if ((first.set & kWhiteSpace) == 0) return {run_end(text, begin, first.set), true};
    if (text.is(begin, ' ') && begin + 1 < text.size()) {
      const auto second = text.at(begin + 1);
      if ((second.set & kWhiteSpace) == 0) return {run_end(text, begin + 1, second.set), true};
    }
    return {white_space_end<Spaces::kPlain>(text, begin), true};
  }
  template <class Cursor>
  static std::size_t run_end(const Cursor& text, std::size_t begin, CategorySet first) {
    if ((first & kLetters) != 0) return text.template letters_end<true>(begin, kLetters);
    return text.run_end(begin, (first & kNumbers) != 0 ? kNumbers : kNeither);
  }
};

// (?i:'s|...)|[^\r\n\p{L}\p{N}]?WORD+|\p{N}{1,3}| ?[^\s\p{L}\p{N}WORD]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <CategorySet kWord, int kMaxNumbers, Spaces kSpaces = Spaces::kLines>
struct Cl100k {
  static constexpr CategorySet kSymbol = kNeither & ~kWord;
  template <class Cursor>
  static Piece next(const Cursor& text, std::size_t begin) {
    if (text.is(begin, '\''))
      if (const std::size_t end = contraction_end<true>(text, begin); end > begin) return {end, true};
    const auto c = text.at(begin);
    if ((c.set & kWord) != 0) return {text.template letters_end<true>(begin, kWord), true};
    const std::size_t second = begin + c.size;
    if ((c.set & (kNumbers | kLineEnds)) == 0 && second < text.size()) {
      const CategorySet next = text.at(second).set;
      if ((next & kWord) != 0) return {text.template letters_end<true>(second, kWord), true};
      if ((next & kSymbol) != 0 && text.is(begin, ' ')) return {symbols_end<false>(text, second, kSymbol), true};
    }
    if ((c.set & kNumbers) != 0) return {numbers_end<kMaxNumbers>(text, begin), true};
    if ((c.set & kSymbol) != 0) return {symbols_end<false>(text, begin, kSymbol), true};
    return {white_space_end<kSpaces>(text, begin), true};
  }
};

// Two kinds of words, capitals before small letters or capitals alone, and a contraction that belongs to its word:
//   LEAD?UPPER*LOWER+(?i:'s|...)?|LEAD?UPPER+LOWER*(?i:'s|...)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
// with LEAD [^\r\n\p{L}\p{N}], UPPER [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], LOWER [\p{Ll}\p{Lm}\p{Lo}\p{M}]. Tekken has no contractions.
template <bool kContractions, int kMaxNumbers>
struct O200k {
  static constexpr CategorySet kBoth = set_of(Category::kLm, Category::kLo) | kMarks,
                               kUpper = set_of(Category::kLu) | set_of(Category::kLt) | kBoth,
                               kLower = set_of(Category::kLl) | kBoth;
  template <class Cursor>
  static Piece next(const Cursor& text, std::size_t begin) {
    const auto c = text.at(begin);
    const std::size_t second = begin + c.size;
    if ((c.set & (kNumbers | kLineEnds)) == 0) {
      const bool leads = (c.set & kLetters) == 0;
      std::size_t end = word_end(text, leads ? second : begin, (c.set & kMarks) == 0);
      // A mark that leads no word is one.
      if (end == second && (c.set & kMarks) == 0 && leads) end = begin;
      if (end > begin) return {with_contraction(text, end), true};
    }
    if ((c.set & kNumbers) != 0) return {numbers_end<kMaxNumbers>(text, begin), true};
    if (text.is(begin, ' ') && second < text.size() && (text.at(second).set & kNeither) != 0)
      return {symbols_end<true>(text, second, kNeither), true};
    if ((c.set & kNeither) != 0) return {symbols_end<true>(text, begin, kNeither), true};
    return {white_space_end<Spaces::kLines>(text, begin), true};
  }

 private:
  // The end of UPPER*LOWER+, or if that fails and capitals alone are a word of UPPER+; else `begin`. Where capitals end a run that
  // holds letters without case, the word ends behind the last of these.
  template <class Cursor>
  static std::size_t word_end(const Cursor& text, std::size_t begin, bool capitals_alone) {
    std::size_t at = begin, both_end = begin;
    while (at < text.size()) {
      const auto c = text.at(at);
      if ((c.set & kUpper) == 0) {
        if ((c.set & kLower) != 0) return text.template letters_end<false>(at, kLower);
        break;
      }
      at += c.size;
      if ((c.set & kLower) != 0) both_end = at;
    }
    return both_end > begin || !capitals_alone ? both_end : at;
  }
  template <class Cursor>
  static std::size_t with_contraction(const Cursor& text, std::size_t end) {
    return kContractions && text.is(end, '\'') ? contraction_end<true>(text, end) : end;
  }
};

// For patterns that do not match everything: match_end() of the rule gives the place itself where no match begins, and skipped()
// a later one before which none does.
template <class Rule>
struct WithGaps {
  template <class Cursor>
  static Piece next(const Cursor& text, std::size_t begin) {
    if (const std::size_t end = Rule::match_end(text, begin); end > begin) return {end, true};
    std::size_t at = begin;
    do at = Rule::skipped(text, at + text.at(at).size);
    while (at < text.size() && Rule::match_end(text, at) == at);
    return {at, false};
  }
};

// DeepSeek's third pattern: [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+
struct DeepSeekWords {
  static constexpr CategorySet kWord = kLetters | kMarks, kSymbol = kPunctuation | kSymbols;
  template <class Cursor>
  static std::size_t skipped(const Cursor&, std::size_t at) {
    return at;
  }
  template <class Cursor>
  static std::size_t match_end(const Cursor& text, std::size_t begin) {
    const auto c = text.at(begin);
    if ((c.set & kWord) != 0) return text.template letters_end<true>(begin, kWord);
    const std::size_t second = begin + c.size;
    if (second < text.size()) {
      const auto next = text.at(second);
      if ((c.set & kSymbol) != 0) {
        if (c.size == 1 && next.size == 1 && (next.set & kLetters) != 0) return text.template ascii_letters_end<true>(second);
      } else if ((c.set & kLineEnds) == 0 && (next.set & kWord) != 0) {
        return text.template letters_end<true>(second, kWord);
      }
      if ((next.set & kSymbol) != 0 && text.is(begin, ' ')) return symbols_end<false>(text, second, kSymbol);
    }
    if ((c.set & kSymbol) != 0) return symbols_end<false>(text, begin, kSymbol);
    return (c.set & kWhiteSpace) != 0 ? white_space_end<Spaces::kLines>(text, begin) : begin;
  }
};

struct DeepSeekNumbers {
  template <class Cursor>
  static std::size_t skipped(const Cursor& text, std::size_t at) {
    return text.template ascii_letters_end<true>(at);
  }
  template <class Cursor>
  static std::size_t match_end(const Cursor& text, std::size_t begin) {
    return numbers_end<3>(text, begin);
  }
};

// The ideographs and Japanese letters of DeepSeek's second pattern.
struct DeepSeekIdeographs {
  template <class Cursor>
  static std::size_t skipped(const Cursor& text, std::size_t at) {
    return text.ascii_end(at);
  }
  template <class Cursor>
  static std::size_t match_end(const Cursor& text, std::size_t at) {
    while (at < text.size()) {
      const char32_t c = text.value(at);
      if (!(c >= 0x4E00 && c <= 0x9FA5) && !(c >= 0x3040 && c <= 0x30FF)) break;
      at += text.at(at).size;
    }
    return at;
  }
};

}  // namespace trident::rules
