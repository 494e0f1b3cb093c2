#include "device/cpu/attention_tiles.h"

namespace trident {

// One source file each (attention_tiles_<level>.cpp), compiled for that instruction set.
AttentionTiles attention_tiles_baseline();
AttentionTiles attention_tiles_avx2();
AttentionTiles attention_tiles_avx512();
AttentionTiles attention_tiles_avx512_bf16();

AttentionTiles attention_tiles(IsaLevel level, bool pairs) {
  switch (level) {
    case IsaLevel::kBaseline: return attention_tiles_baseline();
    case IsaLevel::kAvx2: return attention_tiles_avx2();
    case IsaLevel::kAvx512: return pairs ? attention_tiles_avx512_bf16() : attention_tiles_avx512();
  }
  return attention_tiles_baseline();
}

}  // namespace trident
