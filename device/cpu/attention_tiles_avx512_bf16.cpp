#include <immintrin.h>

#include <cstdint>

#include "device/cpu/attention_tiles.h"

namespace trident {

namespace avx512_bf16 {
namespace {
constexpr std::int64_t kWidth = 16, kVectors = 4;
#include "device/cpu/attention_pairs.inl"
#include "device/cpu/attention_rows.inl"
#include "device/cpu/attention_tiles.inl"
}  // namespace
}  // namespace avx512_bf16

AttentionTiles attention_tiles_avx512_bf16() { return avx512_bf16::kAttentionTiles; }

}  // namespace trident
