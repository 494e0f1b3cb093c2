// Properties of code points as Unicode 16 has them, which is what Hugging Face's tokenizers use, and the normal forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trident {

// General categories. White space that is a control has one of its own, and so have the ends of lines, so that every class of the
// usual patterns is a set of categories.
enum class Category : std::uint8_t {
  kLu, kLl, kLt, kLm, kLo,                 // letters
  kMn, kMc, kMe,                           // marks
  kNd, kNl, kNo,                           // numbers
  kPc, kPd, kPs, kPe, kPi, kPf, kPo,       // punctuation
  kSm, kSc, kSk, kSo,                      // symbols
  kZs, kZl, kZp,                           // separators
  kCc, kCf, kCs, kCo, kCn,                 // others
  kControlSpace,                           // Cc: U+0009, U+000B, U+000C, U+0085
  kLineEnd,                                // Cc: U+000A, U+000D
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

// Beyond U+10FFFF: kCn.
Category category_of(char32_t code_point);
inline bool is_in(char32_t code_point, CategorySet set) { return (set >> static_cast<unsigned>(category_of(code_point)) & 1) != 0; }
inline bool is_white_space(char32_t code_point) { return is_in(code_point, kWhiteSpace); }
// \w: what a word is made of. An added token with single_word is none beside it.
bool is_word_character(char32_t code_point);

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// The normal form of `text` (well-formed UTF-8): `text` itself where it is known to be normal, which for ASCII takes no longer than
// reading it; else what is written to *buffer, which must not hold `text`.
std::string_view normalized(std::string_view text, NormalForm form, std::string* buffer);

// Each code point in lower case, whatever stands beside it. Returns as normalized() does.
std::string_view lowercased(std::string_view text, std::string* buffer);

}  // namespace trident
