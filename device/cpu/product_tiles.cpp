#include "device/cpu/product_tiles.h"

namespace trident {

ProductTiles product_tiles(IsaLevel level, bool pairs) {
  switch (level) {
    case IsaLevel::kBaseline: return product_tiles_baseline();
    case IsaLevel::kAvx2: return product_tiles_avx2();
    case IsaLevel::kAvx512: return pairs ? product_tiles_avx512_bf16() : product_tiles_avx512();
  }
  return product_tiles_baseline();
}

}  // namespace trident
