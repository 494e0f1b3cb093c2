// How much text and how many values a foreign file may hold, and how its errors are said; lists of words.
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

// Whether `word` is one of `words`, between which there are blanks.
bool is_listed(std::string_view word, std::string_view words);

// Counts what is made of a text, so that no expansion goes beyond the limits.
class ForeignLimits {
 public:
  explicit ForeignLimits(std::string_view source) : source_(source) {}  // must live as long

  // A value that has `bytes` of text and key, within `depth` lists and objects. ConfigError where a limit is passed.
  void add(std::size_t bytes, int depth, int line, int column);

 private:
  std::string_view source_;
  std::size_t values_ = 0, bytes_ = 0;
};

}  // namespace trident
