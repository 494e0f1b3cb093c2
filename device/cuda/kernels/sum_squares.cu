#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

namespace {

// A block stages kBlocks times 64 elements in shared memory and gives each 64 to eight threads: thread j adds the squares of
// elements j, j + 8, ... in order, and the eight sums are added as ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)): the order of the
// host's kernel, hence its bits.
constexpr int kElements = 64, kBlocks = 32, kSums = 8;
constexpr int kStride = kElements + 8;  // so that the threads of a warp read from different banks

template <int n>
__global__ void __launch_bounds__(kBlocks* kSums) sum_squares_kernel(double* out, const float* x, I count) {
  using Rows = RowBodies<n>;
  __shared__ float staged[kBlocks * kStride];
  const I first = I{blockIdx.x} * (kBlocks * kElements);
  const int here = static_cast<int>(min(I{kBlocks * kElements}, count - first));
  for (int i = static_cast<int>(threadIdx.x) * n; i < kBlocks * kElements; i += kBlocks * kSums * n) {
    const auto value =
        i + n <= here ? Rows::load(x + first + i, AllLanes{}) : Rows::load(x + first + i, SomeLanes{max(here - i, 0)});
    TRIDENT_UNROLL
    for (int k = 0; k < n; ++k) staged[(i + k) / kElements * kStride + (i + k) % kElements] = value.at[k];
  }
  __syncthreads();
  const int block = static_cast<int>(threadIdx.x) / kSums, j = static_cast<int>(threadIdx.x) % kSums;
  double sum = 0;
  TRIDENT_UNROLL
  for (int i = 0; i < kElements; i += kSums) {
    const double wide = double{staged[block * kStride + i + j]};
    sum += wide * wide;
  }
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(kAllOfWarp, sum, step);
  if (j == 0 && block * kElements < here) out[I{blockIdx.x} * kBlocks + block] = sum;
}

}  // namespace

void sum_squares(Stream stream, double* out, const float* x, I count) {
  with_lanes<float>(is_aligned(x), [&](auto n) {
    launch("sum_squares", listed<sum_squares_kernel<n>>(),
           {.blocks = {grid_size(divide_up(count, kBlocks * kElements))}, .threads = {kBlocks * kSums}}, stream, out, x, count);
  });
}

}  // namespace trident::cuda_kernels
