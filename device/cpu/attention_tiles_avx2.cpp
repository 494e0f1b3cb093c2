#include <cstdint>

#include "device/cpu/attention_tiles.h"

namespace trident {

namespace avx2 {
namespace {
constexpr std::int64_t kWidth = 8, kVectors = 2;
#include "device/cpu/attention_floats.inl"
#include "device/cpu/attention_rows.inl"
#include "device/cpu/attention_tiles.inl"
}  // namespace
}  // namespace avx2

AttentionTiles attention_tiles_avx2() { return avx2::kAttentionTiles; }

}  // namespace trident
