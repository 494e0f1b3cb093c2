// Properties of code points, as Unicode 16 has them, and normal forms, both as Hugging Face's tokenizers library sees them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trident {

// General categories. Control characters that are white space have two of their own, so that the classes of the usual patterns are
// sets of categories.
enum class Category : std::uint8_t {
  kLu, kLl, kLt, kLm, kLo,            // letters
  kMn, kMc, kMe,                      // marks
  kNd, kNl, kNo,                      // numbers
  kPc, kPd, kPs, kPe, kPi, kPf, kPo,  // punctuation
  kSm, kSc, kSk, kSo,                 // symbols
  kZs, kZl, kZp,                      // separators
  kCc, kCf, kCs, kCo, kCn,            // others
  kControlSpace,                      // of Cc: U+0009, U+000B, U+000C, U+0085
  kLineEnd,                           // of Cc: U+000A, U+000D
};

// A bit for each category.
using CategorySet = std::uint32_t;
constexpr CategorySet set_of(Category category) { return CategorySet{1} << static_cast<unsigned>(category); }
constexpr CategorySet set_of(Category first, Category last) { return 2 * set_of(last) - set_of(first); }
inline constexpr CategorySet kLetters = set_of(Category::kLu, Category::kLo), kMarks = set_of(Category::kMn, Category::kMe),
                             kNumbers = set_of(Category::kNd, Category::kNo),
                             kPunctuation = set_of(Category::kPc, Category::kPo),
                             kSymbols = set_of(Category::kSm, Category::kSo), kLineEnds = set_of(Category::kLineEnd),
                             kWhiteSpace = set_of(Category::kZs, Category::kZp) | set_of(Category::kControlSpace) | kLineEnds;

// Two stages: a block for each 256 code points, and what is said of each: the category in the lower five bits.
extern const std::array<std::uint8_t, 4352> kUnicodeBlock;
extern const std::array<std::uint8_t, 43264> kUnicodeProperties;
extern const std::array<CategorySet, 128> kAsciiSets;  // the category of each, as a set

// `code_point` is at most U+10FFFF, here and below.
inline unsigned unicode_properties(char32_t code_point) {
  return kUnicodeProperties[kUnicodeBlock[code_point >> 8] * 256u + (code_point & 255u)];
}
inline Category category_of(char32_t code_point) { return static_cast<Category>(unicode_properties(code_point) & 31u); }
inline bool is_in(char32_t code_point, CategorySet set) { return (set >> (unicode_properties(code_point) & 31u) & 1u) != 0; }
inline bool is_white_space(char32_t code_point) { return is_in(code_point, kWhiteSpace); }

// Where the character begins that ends at `end`, which is above 0, of well-formed UTF-8.
inline std::size_t character_before(std::string_view text, std::size_t end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

// \w of patterns, as categories and what there is beside them (bounds as in script_bounds).
inline constexpr CategorySet kWordCategories =
    kLetters | kMarks | set_of(Category::kNd, Category::kNl) | set_of(Category::kPc);
std::span<const char32_t> word_bounds();
// Words, where an added token has single_word, are made of \w and the two joiners.
bool is_word_character(char32_t code_point);
// The normalizer StripAccents takes these away: marks, but for those of newer versions of Unicode.
bool is_accent(char32_t code_point);

// Where runs of a script's code points begin and end, in turn: Han, Hiragana, Katakana, Hangul, Latin, Greek, Cyrillic, Arabic,
// Hebrew, Thai, Devanagari, named without regard to case. Empty: not one of these.
std::span<const char32_t> script_bounds(std::string_view script);

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// The normal form of `text` (well-formed UTF-8): `text` itself where it is known to be normal, which for ASCII takes no longer than
// reading it; else what is written to *buffer, which must not hold `text`.
std::string_view normalized(std::string_view text, NormalForm form, std::string* buffer);

// Each code point in lower case, whatever stands beside it. Returns what normalized() does.
std::string_view lowercased(std::string_view text, std::string* buffer);

}  // namespace trident
