#include <cstdint>

#include "device/cpu/product_tiles.h"

namespace trident {

namespace avx2 {
namespace {
constexpr std::int64_t kWidth = 8, kTileRows = 6, kTileVectors = 2;
// Each needs the ones before it.
// clang-format off
#include "device/cpu/wide_vectors.inl"
#include "device/cpu/attention_floats.inl"
#include "device/cpu/product_tiles.inl"
// clang-format on
}  // namespace
}  // namespace avx2

ProductTiles product_tiles_avx2();
ProductTiles product_tiles_avx2() { return avx2::kProductTiles; }

}  // namespace trident
