#include <cstdint>

#include "device/cpu/attention_tiles.h"

namespace trident {

namespace avx512 {
namespace {
constexpr std::int64_t kWidth = 16, kVectors = 4;
#include "device/cpu/attention_floats.inl"
#include "device/cpu/attention_rows.inl"
#include "device/cpu/attention_tiles.inl"
}  // namespace
}  // namespace avx512

AttentionTiles attention_tiles_avx512() { return avx512::kAttentionTiles; }

}  // namespace trident
