#include "device/row_kernels/row_kernels.h"

#include "core/check.h"
#include "core/dtype.h"
#include "device/row_kernels/isa_tables.h"

namespace trident {

RowType row_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return RowType::kF32;
    case DType::kBF16: return RowType::kBF16;
    case DType::kF16: return RowType::kF16;
    default: throw InternalError(fmt::format("row kernels compute on f32, bf16 and f16, not {}", to_string(dtype)));
  }
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
