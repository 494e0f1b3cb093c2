#include <cstdint>

#include "device/cpu/product_tiles.h"

namespace trident {

namespace avx512 {
namespace {
constexpr std::int64_t kWidth = 16, kTileRows = 14, kTileVectors = 2;
// Each needs the ones before it.
// clang-format off
#include "device/cpu/wide_vectors.inl"
#include "device/cpu/attention_floats.inl"
#include "device/cpu/product_tiles.inl"
// clang-format on
}  // namespace
}  // namespace avx512

ProductTiles product_tiles_avx512();
ProductTiles product_tiles_avx512() { return avx512::kProductTiles; }

}  // namespace trident
