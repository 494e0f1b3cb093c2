// The language of kernels as the simulation runs it: what kernels must not do is found.
#include "tests/cuda/simulated/simt.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernels/launch.h"
#include "tests/cuda/simt_array.h"

namespace trident::testing {
namespace {

__global__ void divergent_barrier_kernel(int* data) {
  if (threadIdx.x == 3) return;
  __syncthreads();
  data[0] = 1;
}

__global__ void divergent_warp_kernel(int* data) {
  if (threadIdx.x < 16) data[0] = __shfl_xor_sync(~0u, data[0], 1);
  __syncthreads();
}

__global__ void two_operations_kernel(int* data) {
  if (threadIdx.x < 16)
    data[0] = __shfl_xor_sync(~0u, data[0], 1);
  else
    __syncwarp();
}

__global__ void unnamed_lane_kernel(int* data) { data[0] = __shfl_xor_sync(0xFFFFu, data[0], 1); }

__global__ void past_the_end_kernel(int* data, int count) { data[count] = 1; }

void run_death(const char* name, void (*kernel)(int*)) {
  const Array<int> array({1, 2, 3});
  launch(name, kernel, {.blocks = {1}, .threads = {32}}, array.stream(), array.data());
  cudaStreamSynchronize(array.stream());
}

TEST(SimtDeathTest, BarriersThatNotAllThreadsReach) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run_death("divergent_barrier", divergent_barrier_kernel),
               "kernel divergent_barrier.*__syncthreads\\(\\) not reached by 1 of 32 threads");
  EXPECT_DEATH(run_death("divergent_warp", divergent_warp_kernel),
               "kernel divergent_warp.*deadlock.*16 at __syncthreads.*16 in warp operations \\(__shfl_xor_sync\\)");
}

TEST(SimtDeathTest, WarpOperationsWithoutTheirLanes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run_death("two_operations", two_operations_kernel), "kernel two_operations.*lanes of one warp meet in __");
  EXPECT_DEATH(run_death("unnamed_lane", unnamed_lane_kernel),
               "kernel unnamed_lane.*__shfl_xor_sync called by a lane that its mask does not name");
}

TEST(SimtDeathTest, MemoryThatIsNotTheirs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write_at = [](int index) {
    const Array<int> array({1, 2, 3});
    launch("past_the_end", past_the_end_kernel, {.blocks = {1}, .threads = {1}}, array.stream(), array.data(), index);
    cudaStreamSynchronize(array.stream());
  };
  EXPECT_DEATH(write_at(64),
               "kernel past_the_end, block \\(0, 0, 0\\), thread \\(0, 0, 0\\) touched 244 bytes past the end of 12 bytes of "
               "memory of device 0");
  EXPECT_DEATH(
      {
        const Array<int> array({1, 2, 3});
        *const_cast<volatile int*>(array.data()) = 1;
      },
      "the host's own code touched byte 0 of 12 bytes of memory of device 0");
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_DEATH(write_at(3), "use-after-poison");
#endif
}

TEST(Simt, HostMemoryGivenToAKernelIsAnIllegalAddress) {
  const SimulatedScope scope;
  {
    const Array<int> array({1});
    std::vector<int> host(32);
    launch("past_the_end", past_the_end_kernel, {.blocks = {1}, .threads = {1}}, array.stream(), host.data(), 0);
    EXPECT_EQ(cudaStreamSynchronize(array.stream()), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaStreamSynchronize(array.stream()), cudaErrorIllegalAddress) << "a device does not recover";
    EXPECT_EQ(host[0], 0);
    simulated::recover();
  }
}

TEST(Simt, LaunchesThatNoGpuWouldTake) {
  const SimulatedScope scope;
  const Array<int> array({1});
  const auto message = [&](const LaunchShape& shape, cudaStream_t stream) -> std::string {
    try {
      launch("past_the_end", past_the_end_kernel, shape, stream, array.data(), 0);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.blocks = {1}, .threads = {1025}}, array.stream()),
            "kernel past_the_end with 1 x 1 x 1 blocks of 1025 x 1 x 1 threads and 0 bytes of shared memory: "
            "cudaErrorInvalidConfiguration (invalid "
            "configuration argument) on CUDA device 0; please report it");
  EXPECT_NE(message({.blocks = {1, 65536}, .threads = {1}}, array.stream()), "");
  EXPECT_NE(message({.blocks = {1}, .threads = {0}}, array.stream()), "");
  cudaStream_t gone = nullptr;
  check_cuda(cudaStreamCreate(&gone), "test");
  check_cuda(cudaStreamDestroy(gone), "test");
  EXPECT_NE(message({.blocks = {1}, .threads = {1}}, gone), "");
  EXPECT_EQ(message({.blocks = {1}, .threads = {1}}, array.stream()), "");
}

}  // namespace
}  // namespace trident::testing
