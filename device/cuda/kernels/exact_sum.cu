#include <cstdint>

#include "core/exact_sum.h"
#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

namespace {

using Limb = unsigned long long;  // as atomicAdd takes it; two's complement
constexpr int kLimbs = static_cast<int>(ExactSum::kLimbs);

// Whole numbers may be added in any order: every block in its shared memory, then the blocks to the result.
__global__ void __launch_bounds__(kMaxThreads) add_exact_kernel(Limb* limbs, const double* x, I count) {
  __shared__ Limb of_block[kLimbs];
  for (int i = static_cast<int>(threadIdx.x); i < kLimbs; i += static_cast<int>(blockDim.x)) of_block[i] = 0;
  __syncthreads();
  for (I i = I{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += I{gridDim.x} * blockDim.x) {
    const ExactSum::Addend addend = ExactSum::addend_of(x[i]);
    TRIDENT_UNROLL
    for (int k = 0; k < 3; ++k)
      if (k < addend.count && addend.by[k] != 0) atomicAdd(of_block + addend.first + k, static_cast<Limb>(addend.by[k]));
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kLimbs; i += static_cast<int>(blockDim.x))
    if (of_block[i] != 0) atomicAdd(limbs + i, of_block[i]);
}

}  // namespace

void add_exact(Stream stream, std::int64_t* limbs, const double* x, I count) {
  constexpr I kElementsOfThread = 8, kBlocks = 1024;  // at least, where there are enough; at most
  const unsigned threads = threads_for(divide_up(count, kElementsOfThread));
  launch("add_exact", listed<add_exact_kernel>(),
         {.blocks = {grid_size(min(divide_up(count, threads * kElementsOfThread), kBlocks))}, .threads = {threads}}, stream,
         reinterpret_cast<Limb*>(limbs), x, count);
}

}  // namespace trident::cuda_kernels
