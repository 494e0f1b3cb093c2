#include <cstdint>

#include "device/cpu/product_tiles.h"

namespace trident {

namespace baseline {
namespace {
constexpr std::int64_t kWidth = 4, kTileRows = 4, kTileVectors = 2;
// Each needs the ones before it.
// clang-format off
#include "device/cpu/wide_vectors.inl"
#include "device/cpu/attention_floats.inl"
#include "device/cpu/product_tiles.inl"
// clang-format on
}  // namespace
}  // namespace baseline

ProductTiles product_tiles_baseline();
ProductTiles product_tiles_baseline() { return baseline::kProductTiles; }

}  // namespace trident
