// The name a user probably meant.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// Damerau-Levenshtein distance in its optimal-string-alignment form: insertions, deletions, substitutions and swaps of neighbouring
// bytes; upper and lower case are the same.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest edit distance to `name` (the first of equals) that it may be a misspelling of, or "": one edit
// away for every three bytes of `name`, at least one and at most three, and fewer than the candidate has bytes. `name` may come
// from outside: nothing is near one of more than 100 bytes.
std::string_view likely_name(std::string_view name, const std::vector<std::string_view>& candidates);

// "; did you mean "llama-1m"?": likely_name(), or else the first candidate that begins with `name`, or of which it is likely_name()
// up to one of - _ and dots, as "lama" is. "" where none is near.
std::string name_hint(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace trident
