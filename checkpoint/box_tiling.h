// Whether boxes make up a tensor. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/tensor_box.h"

namespace trident {

// Nothing if `boxes` hold every element of a tensor of `shape` exactly once; otherwise what is wrong, as a sentence: a box of
// another rank or outside, two that overlap, elements in none. A box without elements holds nothing. Time: pairs of boxes that
// share rows.
std::optional<std::string> tiling_problem(const std::vector<std::int64_t>& shape, std::span<const TensorBox> boxes);

}  // namespace trident
