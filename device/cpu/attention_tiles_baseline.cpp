#include <cstdint>

#include "device/cpu/attention_tiles.h"

namespace trident {

namespace baseline {
namespace {
constexpr std::int64_t kWidth = 4, kVectors = 2;
#include "device/cpu/attention_floats.inl"
#include "device/cpu/attention_rows.inl"
#include "device/cpu/attention_tiles.inl"
}  // namespace
}  // namespace baseline

AttentionTiles attention_tiles_baseline() { return baseline::kAttentionTiles; }

}  // namespace trident
