#include "checkpoint/content_hash.h"

#include <algorithm>
#include <array>
#include <bit>

#include "checkpoint/box_copy.h"
#include "core/at.h"

namespace trident {
namespace {

constexpr std::int64_t kHashedAtOnce = 1024;  // values

// Every bit of place and value changes about half the bits of the result (degski's mixer).
std::uint64_t number_of(std::int64_t element, float value) {
  std::uint64_t x = static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15u + std::bit_cast<std::uint32_t>(value);
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
  return x ^ x >> 32;
}

// Element (row, column) of the box, whose columns are its last dimension, as a row-major number in the tensor.
std::int64_t element_in_tensor(const TensorBox& box, const std::vector<std::int64_t>& shape, std::int64_t row,
                               std::int64_t column) {
  std::int64_t element = 0, stride = 1;
  for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
    const bool is_last = d + 1 == shape.size();
    element += stride * (box.offset[d] + (is_last ? column : row % box.shape[d]));
    if (!is_last) row /= box.shape[d];
  }
  return element;
}

}  // namespace

std::uint64_t content_hash(const TensorBox& box, const std::vector<std::int64_t>& shape, std::int64_t first,
                           std::span<const std::byte> values, DType dtype) {
  const std::int64_t columns = box.shape.empty() ? 1 : box.shape.back(), count = std::ssize(values) / size_of(dtype);
  std::array<float, kHashedAtOnce> floats;
  std::uint64_t sum = 0;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t column = (first + done) % columns, n = std::min({count - done, columns - column, kHashedAtOnce});
    const std::int64_t element = element_in_tensor(box, shape, (first + done) / columns, column);
    convert_values(values.data() + done * size_of(dtype), dtype, reinterpret_cast<std::byte*>(floats.data()), DType::kF32, n);
    for (std::int64_t i = 0; i < n; ++i) sum += number_of(element + i, at(floats, i));
    done += n;
  }
  return sum;
}

}  // namespace trident
