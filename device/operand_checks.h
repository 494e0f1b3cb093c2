// Operands seen as rows, and workspaces of the size that was announced.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor_view.h"
#include "device/row_kernels/row_kernels.h"

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

inline void expect_room(std::string_view operation, ConstTensorView workspace, std::int64_t needed) {
  const std::int64_t there = workspace.num_bytes();
  TRIDENT_CHECK(there >= needed, "{}: a workspace of {} bytes, {} needed", operation, there, needed);
}

}  // namespace trident
