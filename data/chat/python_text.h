// Python's str methods, on UTF-8 and by code points. Results keep the marks of what they are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/value.h"

namespace trident::jinja {

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable, Unicode 14 as Python 3.11 has it
std::size_t leading_space(std::string_view text);  // bytes
std::size_t stripped_end(std::string_view text);   // without the white space at its end

std::size_t count_code_points(std::string_view text);
std::size_t place_of_code_point(std::string_view text, std::size_t index);  // its first byte, or text.size()
// Whether it is one of words with spaces between.
bool has_word(std::string_view words, std::string_view word);
// Like std::string_view::find, in time that grows with the sum of both sizes.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0);

enum class Ends : std::uint8_t { kBoth, kLeft, kRight };
Text strip(const Text& text, const Text* characters, Ends ends);  // nullptr: white space

// A step for each part. nullptr: between white space. `max_splits` -1: all. Refuses an empty separator.
std::vector<Text> split(const Text& text, const Text* separator, std::int64_t max_splits, Budget* budget);
std::vector<Text> split_lines(const Text& text, Budget* budget);

Text replace(const Text& text, const Text& old, const Text& by, std::int64_t count);  // -1: all
Text slice(const Text& text, std::optional<std::int64_t> begin, std::optional<std::int64_t> end, std::int64_t step);

Text upper(const Text& text);
Text lower(const Text& text);
Text capitalize(const Text& text);
Text title(const Text& text);

// Text % value: %s, %r, %d, %i, %u, %e, %f and %g with the flags - + 0 and space, a width and a precision; %(name)s of a dict.
Text percent_formatted(const Text& format, const Value& value, Budget* budget);

// The items first, first + step, ... that a slice takes of `size`. `step` may be nearer to 0 where that takes the same.
struct SliceBounds {
  std::int64_t first, step, count;
};
SliceBounds slice_bounds(std::size_t size, std::optional<std::int64_t> begin, std::optional<std::int64_t> end, std::int64_t step);

std::string number_text(double value);  // repr(float)

}  // namespace trident::jinja
