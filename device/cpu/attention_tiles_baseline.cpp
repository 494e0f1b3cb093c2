#include <cstdint>

#include "device/cpu/attention_tiles.h"

namespace trident {

namespace baseline {
namespace {
constexpr std::int64_t kWidth = 4, kVectors = 2;
// Each needs the ones before it.
// clang-format off
#include "device/cpu/wide_vectors.inl"
#include "device/cpu/attention_floats.inl"
#include "device/cpu/attention_rows.inl"
#include "device/cpu/attention_tiles.inl"
// clang-format on
}  // namespace
}  // namespace baseline

AttentionTiles attention_tiles_baseline();
AttentionTiles attention_tiles_baseline() { return baseline::kAttentionTiles; }

}  // namespace trident
