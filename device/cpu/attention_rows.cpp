#include "device/cpu/attention_rows.h"

namespace trident {

// One source file each (attention_rows_<level>.cpp), compiled for that instruction set.
AttentionRows attention_rows_baseline();
AttentionRows attention_rows_avx2();
AttentionRows attention_rows_avx512();

AttentionRows attention_rows(IsaLevel level) {
  switch (level) {
    case IsaLevel::kBaseline: return attention_rows_baseline();
    case IsaLevel::kAvx2: return attention_rows_avx2();
    case IsaLevel::kAvx512: return attention_rows_avx512();
  }
  return attention_rows_baseline();
}

}  // namespace trident
