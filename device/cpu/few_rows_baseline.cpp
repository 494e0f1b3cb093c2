#include <cstdint>

#include "device/cpu/few_rows.h"

namespace trident {

namespace baseline {
namespace {
constexpr std::int64_t kWidth = 4, kTileColumns = 2;
#include "device/cpu/few_rows.inl"
}  // namespace
}  // namespace baseline

FewRows few_rows_baseline() { return baseline::make_few_rows(); }

}  // namespace trident
