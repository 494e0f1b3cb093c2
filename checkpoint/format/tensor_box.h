// A box of a named tensor: what one stored piece of it holds. Pure; any number of dimensions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trident {

// Elements offset[d] .. offset[d] + shape[d] - 1 in each dimension d of the tensor. A scalar's box has no dimensions and one element.
struct TensorBox {
  std::vector<std::int64_t> offset, shape;

  std::int64_t elements() const;
  bool operator==(const TensorBox&) const = default;
};

// The elements that both hold; nothing where there are none. Both have the same number of dimensions.
std::optional<TensorBox> intersection(const TensorBox& a, const TensorBox& b);

// Whether the box has as many dimensions as the shape and lies in a tensor of it.
bool is_inside(const TensorBox& box, const std::vector<std::int64_t>& shape);

// A whole tensor of `shape`.
TensorBox whole(std::vector<std::int64_t> shape);

// "[0:512, 64:128]"
std::string to_string(const TensorBox& box);

}  // namespace trident
