// The name a user probably meant.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace trident {

// Damerau-Levenshtein distance in its optimal-string-alignment form: insertions, deletions, substitutions and swaps of neighbouring
// bytes; upper and lower case are the same.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest edit distance to `name` (the first of equals); empty when there is none. `name` may come from
// outside: only its first 100 bytes are compared.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& candidates);

// The nearest candidate that `name` may be a misspelling of, or "" without one: at most two edits away, or a third of the length of
// `name`, but one where that has three bytes or fewer, and fewer edits than the candidate has bytes.
std::string_view likely_name(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace trident
