// Checks of operation operands on the CPU: what is wrong, with which operation and operand.
#pragma once

#include <string_view>

#include "core/tensor_view.h"

namespace trident {

// A view as rows over its last dimension.
struct RowExtent {
  std::int64_t rows = 0, width = 0;
};

inline RowExtent row_extent(ConstTensorView view) {
  TRIDENT_CHECK(view.shape().rank() >= 1, "a tensor without dimensions has no rows");
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < view.shape().rank(); ++d) rows *= view.shape()[d];
  return {rows, view.shape()[-1]};
}

// `operand` holds `count` elements of `dtype` in host memory.
inline void expect(std::string_view operation, std::string_view operand, ConstTensorView view, DType dtype, std::int64_t count) {
  TRIDENT_CHECK(view.dtype() == dtype && view.num_elements() == count, "{}: {} is {} {}, expected {} elements of {}", operation,
                operand, to_string(view.dtype()), to_string(view.shape()), count, to_string(dtype));
  TRIDENT_CHECK(view.where() != MemoryKind::kDevice, "{}: {} lies in device memory", operation, operand);
}

inline void expect_shape(std::string_view operation, std::string_view operand, ConstTensorView view, DType dtype,
                         const Shape& shape) {
  expect(operation, operand, view, dtype, shape.num_elements());
  TRIDENT_CHECK(view.shape() == shape, "{}: {} is {}, expected {}", operation, operand, to_string(view.shape()), to_string(shape));
}

// Equal dtype and number of elements.
inline void expect_like(std::string_view operation, std::string_view operand, ConstTensorView view, ConstTensorView model) {
  expect(operation, operand, view, model.dtype(), model.num_elements());
}

}  // namespace trident
