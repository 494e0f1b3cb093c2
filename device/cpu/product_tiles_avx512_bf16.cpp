#include <immintrin.h>

#include <cstdint>

#include "device/cpu/product_tiles.h"

namespace trident {

namespace avx512_bf16 {
namespace {
constexpr std::int64_t kWidth = 16, kTileRows = 14, kTileVectors = 2;
#include "device/cpu/attention_pairs.inl"
#include "device/cpu/product_tiles.inl"
}  // namespace
}  // namespace avx512_bf16

ProductTiles product_tiles_avx512_bf16() { return avx512_bf16::kProductTiles; }

}  // namespace trident
