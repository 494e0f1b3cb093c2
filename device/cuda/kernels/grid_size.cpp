#include "core/check.h"
#include "device/cuda/kernels/kernels.h"

namespace trident::cuda_kernels {

unsigned grid_size(I blocks) {
  constexpr I kMost = 0x7fffffff;
  TRIDENT_CHECK(blocks >= 0 && blocks <= kMost, "a kernel of {} blocks; a grid has at most {}", blocks, kMost);
  return static_cast<unsigned>(blocks);
}

}  // namespace trident::cuda_kernels
