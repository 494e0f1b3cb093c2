#include <cstdint>

#include "device/cpu/multiply_loops.h"

namespace trident {

namespace avx512 {
namespace {
constexpr int kWidth = 16, kSums = 24;
#include "device/cpu/multiply_loops.inl"

// Every word is two numbers of bf16, 0.75 and -0.5 in one operand and 0.75 and 0.5 in the other, so that sums stay small.
constexpr std::uint32_t kPairs = 0xBF003F40, kOtherPairs = 0x3F003F40;
typedef std::uint32_t Words __attribute__((vector_size(4 * kWidth)));

// The assembler knows the instructions, whatever the compiler may use.
void multiply_pairs(std::int64_t rounds) {
  const Words a = Words{} + kPairs, b = Words{} + kOtherPairs;
  Floats sums[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sums[i] = Floats{} + static_cast<float>(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(sums[i]) : "v"(a), "v"(b));
  }
}

struct alignas(64) TileShapes {
  std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

// Four sums of 16 x 16, enough for a latency of 52 cycles at one instruction in sixteen. The compiler uses no tile, so that none is
// named as changed.
void multiply_tiles(std::int64_t rounds) {
  const TileShapes shapes;
  std::uint32_t a[16 * 16], b[16 * 16];
  for (int i = 0; i < 16 * 16; ++i) a[i] = kPairs, b[i] = kOtherPairs;
  const std::int64_t stride = 64;
  __asm__ volatile(
      "ldtilecfg %0\n\t"
      "tilezero %%tmm0\n\t"
      "tilezero %%tmm1\n\t"
      "tilezero %%tmm2\n\t"
      "tilezero %%tmm3\n\t"
      "tileloadd (%1,%3,1), %%tmm4\n\t"
      "tileloadd (%1,%3,1), %%tmm5\n\t"
      "tileloadd (%2,%3,1), %%tmm6\n\t"
      "tileloadd (%2,%3,1), %%tmm7"
      :
      : "m"(shapes), "r"(a), "r"(b), "r"(stride)
      : "memory");
  for (std::int64_t round = 0; round < rounds; ++round) {
    __asm__ volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
        "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
        :
        :
        : "memory");
  }
  __asm__ volatile("tilerelease" : : : "memory");
}
}  // namespace
}  // namespace avx512

MultiplyLoop fp32_loop_avx512();
MultiplyLoop fp32_loop_avx512() { return avx512::kFloats; }
MultiplyLoop vdpbf16ps_loop_avx512() { return {4.0 * avx512::kSums * avx512::kWidth, avx512::multiply_pairs}; }
MultiplyLoop tdpbf16ps_loop_avx512() { return {4 * 2.0 * 16 * 16 * 32, avx512::multiply_tiles}; }

}  // namespace trident
