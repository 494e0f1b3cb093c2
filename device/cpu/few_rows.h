// Products of a few rows with a matrix, as they come up when text is made token by token: bound by reading the matrix, once.
// Compiled once per instruction set from few_rows.inl; files compiled for one instruction set include nothing of std that has code.
//
// A row's results depend on that row and the matrix alone, not on how many rows there are: every sum has an order of its own.
// "T" is f32, bf16 or f16 by RowType; sums are f32.
#pragma once

#include <cstdint>

#include "device/row_kernels/row_kernels.h"

namespace trident {

struct FewRows {
  // out f32[rows, n], row r at out + r * out_stride, = x f32[rows, k] w^T, w T[n, k].
  void (*times_transposed)(RowType t, float* out, std::int64_t out_stride, const float* x, std::int64_t rows, const void* w,
                           std::int64_t n, std::int64_t k);
  // out f32[rows, n], of rows out_stride apart, (+)= x f32[rows, k] w, w T[k, n] of rows w_stride elements apart.
  void (*times)(RowType t, float* out, std::int64_t out_stride, const float* x, std::int64_t rows, const void* w,
                std::int64_t w_stride, std::int64_t n, std::int64_t k, bool accumulate);
};

// The kernels for `level`, which the processor must support.
FewRows few_rows(IsaLevel level);

// One source file each (few_rows_<level>.cpp), compiled for that instruction set.
FewRows few_rows_baseline();
FewRows few_rows_avx2();
FewRows few_rows_avx512();

}  // namespace trident
