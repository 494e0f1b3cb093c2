// The row kernels for AVX2. Compiled with that instruction set: nothing here may have vague linkage under a shared name, or the
// linker could keep this copy for everybody. Hence own headers only, and everything in a namespace of its own.
#include <immintrin.h>

#include "device/row_kernels/isa_tables.h"

namespace trident::row_kernels_avx2 {

constexpr int kLanes = 8;

// Each needs the ones before it.
// clang-format off
#include "device/row_kernels/lanes.inl"
#include "device/row_kernels/lanes_avx2.inl"
#include "device/row_kernels/lanes_small.inl"
#include "device/row_kernels/kernels_impl.inl"
// clang-format on

constexpr RowKernels kTable = table_of(IsaLevel::kAvx2);

}  // namespace trident::row_kernels_avx2
