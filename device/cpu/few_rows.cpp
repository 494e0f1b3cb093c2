#include "device/cpu/few_rows.h"

namespace trident {

FewRows few_rows(IsaLevel level) {
  switch (level) {
    case IsaLevel::kBaseline: return few_rows_baseline();
    case IsaLevel::kAvx2: return few_rows_avx2();
    case IsaLevel::kAvx512: return few_rows_avx512();
  }
  return few_rows_baseline();
}

}  // namespace trident
