// Sets of code points: what a class of a pattern stands for.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/packed_numbers.h"
#include "core/utf8.h"
#include "data/tokenizer/unicode.h"

namespace trident {

class CharSet {
 public:
  CharSet() = default;  // empty
  // Where runs of code points begin and end, in turn, in ascending order.
  explicit CharSet(std::span<const char32_t> bounds) : bounds_(bounds.begin(), bounds.end()) {}
  static CharSet of_range(char32_t first, char32_t last);
  static CharSet of_categories(CategorySet categories);

  CharSet operator|(const CharSet& other) const;
  CharSet operator&(const CharSet& other) const;
  CharSet operator~() const;
  bool operator==(const CharSet& other) const { return bounds_ == other.bounds_; }

  bool is_ascii() const { return bounds_.empty() || bounds_.back() <= 128; }
  bool contains(char32_t c) const { return c < bits_.size() ? bits_[c] : is_between(bounds_, c); }
  // Bytes of the code point at text[at] if it belongs to the set, else 0. `at` is inside the text.
  std::size_t size_at(std::string_view text, std::size_t at) const {
    const CodePoint c = code_point_at(text, at);
    return contains(c.value) ? c.size : 0;
  }
  // Makes contains() of all that is usual one look.
  void write_out();

 private:
  template <class F>
  CharSet combined(const CharSet& other, F has) const;

  std::vector<char32_t> bounds_;
  std::vector<bool> bits_;  // by code point, once it is written out
};

}  // namespace trident
