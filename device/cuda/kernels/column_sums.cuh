// Sums over rows in two steps, without atomics: every block writes the sums of its rows as one row of partial sums, then the
// partial rows are added.
#pragma once

#include "device/cuda/kernels/kernels.h"

namespace trident::cuda_kernels {

// The outputs of one or two sums per column: partial rows hold the columns of `first`, then those of `second`.
struct ColumnSums {
  float* first = nullptr;
  float* second = nullptr;
  I width = 0;  // of each
};

// (+)= the sums of `rows` partial rows of `columns` elements; columns = width, or 2 * width with a second output.
void add_partial_rows(Stream stream, const char* name, const ColumnSums& out, const float* partials, I rows, I columns,
                      Accumulate accumulate);

}  // namespace trident::cuda_kernels
