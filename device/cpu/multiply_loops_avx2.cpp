#include "device/cpu/multiply_loops.h"

namespace trident {

namespace avx2 {
namespace {
constexpr int kWidth = 8, kSums = 12;
#include "device/cpu/multiply_loops.inl"
}  // namespace
}  // namespace avx2

MultiplyLoop fp32_loop_avx2();
MultiplyLoop fp32_loop_avx2() { return avx2::kFloats; }

}  // namespace trident
