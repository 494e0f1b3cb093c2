// How much text and how many values a foreign file may hold, and how its errors are said.
#pragma once

#include <cstddef>
#include <string_view>

namespace trident {

inline constexpr std::size_t kMaxForeignBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxForeignValues = 100'000;
inline constexpr int kMaxForeignDepth = 64;

// Throws ConfigError "<source>:<line>:<column>: <why>".
[[noreturn]] void refuse_at(std::string_view source, int line, int column, std::string_view why);

// Throws ConfigError: more than kMaxForeignBytes, what is not UTF-8, control characters other than tabs and line ends.
void check_foreign_text(std::string_view text, std::string_view source);

// Counts what is made of a text, so that no expansion goes beyond the limits; each call throws ConfigError where one is passed.
class ForeignLimits {
 public:
  struct Size {
    std::size_t values = 0;
    std::size_t bytes = 0;  // of texts and keys
    Size operator-(const Size& other) const { return {values - other.values, bytes - other.bytes}; }
  };

  explicit ForeignLimits(std::string_view source) : source_(source) {}  // must live as long

  void add(const Size& size, int line, int column);
  void check_depth(int depth, int line, int column) const;  // 1: a list or an object that is in no other
  const Size& counted() const { return counted_; }

 private:
  std::string_view source_;
  Size counted_;
};

}  // namespace trident
