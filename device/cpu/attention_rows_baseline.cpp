#include <cstdint>

#include "device/cpu/attention_rows.h"

namespace trident {

namespace baseline {
namespace {
constexpr std::int64_t kWidth = 16;
#include "device/cpu/wide_vectors.inl"

// The code that the vectors are for.
#include "device/cpu/attention_rows.inl"
}  // namespace
}  // namespace baseline

AttentionRows attention_rows_baseline();
AttentionRows attention_rows_baseline() { return baseline::make_attention_rows(); }

}  // namespace trident
