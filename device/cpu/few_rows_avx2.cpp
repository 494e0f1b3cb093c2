#include <cstdint>

#include "device/cpu/few_rows.h"

namespace trident {

namespace avx2 {
namespace {
constexpr std::int64_t kWidth = 8, kTileColumns = 2;
#include "device/cpu/few_rows.inl"
}  // namespace
}  // namespace avx2

FewRows few_rows_avx2() { return avx2::make_few_rows(); }

}  // namespace trident
