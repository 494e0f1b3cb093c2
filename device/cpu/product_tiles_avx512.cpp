#include <cstdint>

#include "device/cpu/product_tiles.h"

namespace trident {

namespace avx512 {
namespace {
constexpr std::int64_t kWidth = 16, kTileRows = 14, kTileVectors = 2;
#include "device/cpu/attention_floats.inl"
#include "device/cpu/product_tiles.inl"
}  // namespace
}  // namespace avx512

ProductTiles product_tiles_avx512() { return avx512::kProductTiles; }

}  // namespace trident
