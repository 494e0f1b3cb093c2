// Sets of code points: what a class of a pattern stands for.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/utf8.h"
#include "data/tokenizer/unicode.h"

namespace trident {

class CharSet {
 public:
  CharSet() = default;  // empty
  static CharSet of_range(char32_t first, char32_t last);
  static CharSet of_categories(CategorySet categories);
  // Where runs begin and end, in turn, in ascending order.
  static CharSet of_bounds(std::span<const char32_t> bounds);

  CharSet operator|(const CharSet& other) const;
  CharSet operator&(const CharSet& other) const;
  CharSet operator~() const;
  bool contains(char32_t c) const;
  std::span<const char32_t> bounds() const { return bounds_; }
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<char32_t> bounds_;
};

// The same for many questions: ASCII by table, sets of categories by category.
class CharTest {
 public:
  explicit CharTest(const CharSet& set);
  bool operator()(char32_t c) const {
    if (c < ascii_.size()) return ascii_[c];
    return is_categories_ ? is_in(c, categories_) : set_.contains(c);
  }
  // Bytes of the code point at text[at] if it belongs to the set, else 0. `at` is inside the text.
  std::size_t size_at(std::string_view text, std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < ascii_.size()) return ascii_[byte] ? 1 : 0;
    const CodePoint c = code_point_at(text, at);
    return (*this)(c.value) ? c.size : 0;
  }

 private:
  std::array<bool, 128> ascii_;
  bool is_categories_ = false;
  CategorySet categories_ = 0;
  CharSet set_;
};

}  // namespace trident
