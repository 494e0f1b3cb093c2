#include "device/cpu/multiply_loops.h"

namespace trident {

namespace baseline {
namespace {
constexpr int kWidth = 4, kSums = 12;
#include "device/cpu/multiply_loops.inl"
}  // namespace
}  // namespace baseline

MultiplyLoop fp32_loop_baseline();
MultiplyLoop fp32_loop_baseline() { return baseline::kFloats; }

}  // namespace trident
