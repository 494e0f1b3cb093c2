#include <cstdint>

#include "device/cpu/attention_rows.h"

namespace trident {

namespace avx2 {
namespace {
constexpr std::int64_t kWidth = 16;
#include "device/cpu/wide_vectors.inl"

// The code that the vectors are for.
#include "device/cpu/attention_rows.inl"
}  // namespace
}  // namespace avx2

AttentionRows attention_rows_avx2();
AttentionRows attention_rows_avx2() { return avx2::make_attention_rows(); }

}  // namespace trident
