// Kernels that scripts/check_kernels must complain about. Not part of any program.
#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

// So many threads leave 32 registers for each: the sums spill.
__global__ void __launch_bounds__(1024, 2) spilling_kernel(float* out, const float* x) {
  Lanes<4> sum[24];
  TRIDENT_UNROLL
  for (int k = 0; k < 24; ++k) sum[k] = RowBodies<4>::load(x + 4096 * k + 4 * threadIdx.x, AllLanes{});
  __syncthreads();
  TRIDENT_UNROLL
  for (int k = 0; k < 24; ++k) RowBodies<4>::store(out + 4096 * k + 4 * threadIdx.x, sum[k] * sum[(k + 7) % 24], AllLanes{});
}

__global__ void one_by_one_kernel(float* out, const float* x) { out[threadIdx.x] = x[threadIdx.x]; }

}  // namespace trident::cuda_kernels
