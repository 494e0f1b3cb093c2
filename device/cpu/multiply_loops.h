// Loops of one multiply instruction whose operands stay in registers: no product is faster. Compiled once per instruction set from
// multiply_loops.inl; files compiled for one instruction set include nothing of std that has code.
#pragma once

#include <cstdint>

#include "device/row_kernels/isa_level.h"

namespace trident {

struct MultiplyLoop {
  double flops = 0;  // of a round
  void (*run)(std::int64_t rounds) = nullptr;
};

// fp32 multiply-adds in the vectors of `level`, which the processor must support.
MultiplyLoop fp32_loop(IsaLevel level);
// vdpbf16ps on 512 bits, and tdpbf16ps on whole tiles. The processor must have the instruction, and the process leave to use tiles.
MultiplyLoop vdpbf16ps_loop_avx512();
MultiplyLoop tdpbf16ps_loop_avx512();

}  // namespace trident
