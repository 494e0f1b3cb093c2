#include "device/cpu/attention_tiles.h"

namespace trident {

AttentionTiles attention_tiles(IsaLevel level, bool pairs) {
  switch (level) {
    case IsaLevel::kBaseline: return attention_tiles_baseline();
    case IsaLevel::kAvx2: return attention_tiles_avx2();
    case IsaLevel::kAvx512: return pairs ? attention_tiles_avx512_bf16() : attention_tiles_avx512();
  }
  return attention_tiles_baseline();
}

}  // namespace trident
