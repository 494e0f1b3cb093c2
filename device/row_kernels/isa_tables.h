// The tables behind row_kernels(), one per instruction set.
#pragma once

#include "device/row_kernels/row_kernels.h"

namespace trident {

namespace row_kernels_baseline {
extern const RowKernels kTable;
}
namespace row_kernels_avx2 {
extern const RowKernels kTable;
}
namespace row_kernels_avx512 {
extern const RowKernels kTable;
}

}  // namespace trident
