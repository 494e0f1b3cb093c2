#include <cstdint>

#include "device/cpu/product_tiles.h"

namespace trident {

namespace avx2 {
namespace {
constexpr std::int64_t kWidth = 8, kTileRows = 6, kTileVectors = 2;
#include "device/cpu/attention_floats.inl"
#include "device/cpu/product_tiles.inl"
}  // namespace
}  // namespace avx2

ProductTiles product_tiles_avx2() { return avx2::kProductTiles; }

}  // namespace trident
