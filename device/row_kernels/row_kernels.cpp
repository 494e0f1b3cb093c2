#include "device/row_kernels/row_kernels.h"

#include "core/check.h"
#include "core/dtype.h"
#include "device/row_kernels/isa_tables.h"

namespace trident {

RowType row_type(DType dtype) {
  TRIDENT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "row kernels compute on f32 and bf16, not {}", to_string(dtype));
  return dtype == DType::kF32 ? RowType::kF32 : RowType::kBF16;
}

const RowKernels& row_kernels(IsaLevel level) {
  switch (level) {
    case IsaLevel::kBaseline: return row_kernels_baseline::kTable;
    case IsaLevel::kAvx2: return row_kernels_avx2::kTable;
    case IsaLevel::kAvx512: return row_kernels_avx512::kTable;
  }
  TRIDENT_CHECK(false, "no instruction set level {}", static_cast<int>(level));
  return row_kernels_baseline::kTable;
}

}  // namespace trident
