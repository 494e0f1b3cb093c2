// A hash of a tensor's values that is alike whoever reads which of them, in whatever order: the sum, modulo 2^64, of a number for
// each element that follows from its place and its value. It tells models apart whose tensors have equal names and shapes. It does
// not protect against who means harm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/format/tensor_box.h"
#include "core/dtype.h"

namespace trident {

// Returns what `values`, elements of `box` from number `first` on, row-major, add to the hash of their tensor of `shape`. They are
// f32, bf16 or f16, and all count as f32, so that a tensor and an exact copy of another dtype are equal.
std::uint64_t content_hash(const TensorBox& box, const std::vector<std::int64_t>& shape, std::int64_t first,
                           std::span<const std::byte> values, DType dtype);

}  // namespace trident
