#include <cstdint>

#include "device/cpu/product_tiles.h"

namespace trident {

namespace baseline {
namespace {
constexpr std::int64_t kWidth = 4, kTileRows = 4, kTileVectors = 2;
#include "device/cpu/attention_floats.inl"
#include "device/cpu/product_tiles.inl"
}  // namespace
}  // namespace baseline

ProductTiles product_tiles_baseline() { return baseline::kProductTiles; }

}  // namespace trident
