#include <cstdint>

#include "device/cpu/few_rows.h"

namespace trident {

namespace avx512 {
namespace {
constexpr std::int64_t kWidth = 16, kTileColumns = 4;
#include "device/cpu/few_rows.inl"
}  // namespace
}  // namespace avx512

FewRows few_rows_avx512() { return avx512::make_few_rows(); }

}  // namespace trident
