// Sets of code points: what a class of a pattern stands for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/utf8.h"
#include "data/tokenizer/unicode.h"

namespace trident {

// ASCII by bits. Beyond it categories, which most classes are made of, or else runs.
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
  bool is_ascii() const { return has_runs_ ? runs_.empty() : categories_ == 0; }
  bool contains(char32_t c) const {
    if (c < 128) return (ascii_[c / 64] >> (c % 64) & 1) != 0;
    return has_runs_ ? is_in_runs(c) : is_in(c, categories_);
  }
  // Bytes of the code point at text[at] if it belongs to the set, else 0. `at` is inside the text.
  std::size_t size_at(std::string_view text, std::size_t at) const {
    const CodePoint c = code_point_at(text, at);
    return contains(c.value) ? c.size : 0;
  }
  bool operator==(const CharSet&) const = default;

 private:
  template <class F>
  CharSet combined(const CharSet& other, F bits) const;
  std::vector<char32_t> runs() const;
  bool is_in_runs(char32_t c) const;

  std::array<std::uint64_t, 2> ascii_{};
  bool has_runs_ = false;
  CategorySet categories_ = 0;
  std::vector<char32_t> runs_;  // bounds, beyond ASCII
};

}  // namespace trident
