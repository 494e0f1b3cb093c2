// The language of kernels as the simulation runs it: what kernels must not do shows. That what they may do gives the right numbers,
// their own tests prove (kernels_*_test.cpp).
#include "tests/cuda/simulated/simt.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernels/launch.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

using simulated::FiberOrder;

constexpr FiberOrder kThreadOrders[] = {FiberOrder::kForward, FiberOrder::kReverse, FiberOrder::kRandom,
                                               FiberOrder::kWarpByWarp};

// Device memory with a stream of its own; reads back once everything is done.
template <class T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : count_(values.size()) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "test");
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), count_ * sizeof(T)), "test");
    check_cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "test");
  }
  ~Array() {
    cudaFree(data_);
    cudaStreamDestroy(stream_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return data_; }
  cudaStream_t stream() const { return stream_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    check_cuda(cudaMemcpyAsync(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost, stream_), "test");
    check_cuda(cudaStreamSynchronize(stream_), "test");
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// ---- a block together

__global__ void reverse_kernel(int* data) {
  int* const copy = dynamic_shared<int>();
  const unsigned me = threadIdx.x, last = blockDim.x - 1;
  copy[me] = data[me];
  __syncthreads();
  data[me] = copy[last - me];
}

TEST(Simt, NoBlocksAreNoLaunch) {
  const SimulatedScope scope;
  const Array<int> array({7});
  launch("reverse", reverse_kernel, {.blocks = {0}, .threads = {32}}, array.stream(), array.data());
  launch("reverse", reverse_kernel, {.blocks = {1, 0}, .threads = {32}}, array.stream(), array.data());
  EXPECT_EQ(simulated::census().queued, 0u);
  EXPECT_EQ(array.read(), std::vector<int>{7});
}

TEST(Simt, MoreDynamicSharedMemoryThanABlockHasWithoutAsking) {
  const SimulatedScope scope;
  const Array<int> array({1, 2});
  launch("reverse", reverse_kernel, {.blocks = {1}, .threads = {2}, .shared_bytes = 100 << 10}, array.stream(), array.data());
  EXPECT_EQ(array.read(), (std::vector<int>{2, 1}));
  EXPECT_THROW(
      launch("reverse", reverse_kernel, {.blocks = {1}, .threads = {2}, .shared_bytes = 228 << 10}, array.stream(), array.data()),
      InternalError);
}

__global__ void missing_barrier_kernel(int* data) {
  __shared__ int copy[64];
  copy[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = copy[63 - threadIdx.x];  // without a barrier
}

TEST(Simt, AMissingBarrierGivesOtherNumbersInOtherOrders) {
  std::vector<int> values(64);
  std::iota(values.begin(), values.end(), 1);
  const std::vector<int> right(values.rbegin(), values.rend());
  for (const FiberOrder order : kThreadOrders) {
    const SimulatedScope scope({.fiber_order = order});
    const Array<int> array(values);
    launch("missing_barrier", missing_barrier_kernel, {.blocks = {1}, .threads = {64}}, array.stream(), array.data());
    EXPECT_NE(array.read(), right) << "order " << static_cast<int>(order);
  }
}

// A barrier of the warp where the block needs one: in rounds all warps write before the first reads.
__global__ void sum_without_barrier_kernel(int* out, int* in) {
  __shared__ int part[3];
  int sum = in[threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes >>= 1) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncwarp();
  const int others = __shfl_xor_sync(~0u, part[(threadIdx.x / 32 + 1) % 3], 0);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = part[threadIdx.x / 32] + others;
}

TEST(Simt, AWarpThatRunsAheadFindsABarrierMissingBetweenWarps) {
  const auto sums = [](FiberOrder order) {
    const SimulatedScope scope({.fiber_order = order});
    const Array<int> array(std::vector<int>(96, 1));
    launch("sum_without_barrier", sum_without_barrier_kernel, {.blocks = {1}, .threads = {96}}, array.stream(), array.data(),
           array.data());
    const std::vector<int> all = array.read();
    return std::vector<int>(all.begin(), all.begin() + 3);
  };
  EXPECT_EQ(sums(FiberOrder::kForward), std::vector<int>(3, 64));
  EXPECT_NE(sums(FiberOrder::kWarpByWarp), std::vector<int>(3, 64));
}

__global__ void stale_shared_kernel(float* data) {
  __shared__ float left_over;
  data[blockIdx.x] = left_over;
  left_over = 1.0f;
}

TEST(Simt, SharedMemoryIsGarbageWhenABlockStarts) {
  const SimulatedScope scope;
  const Array<float> array({0, 0, 0, 0});
  launch("stale_shared", stale_shared_kernel, {.blocks = {4}, .threads = {1}}, array.stream(), array.data());
  for (const float value : array.read()) EXPECT_FALSE(std::abs(value) < 1e30f) << value;
}

// ---- warps

// Half warps that go different ways, and lanes that have left.
__global__ void half_warps_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane >= 24) return;
  if (lane < 16) {
    for (int turn = 0; turn < 3; ++turn) out[lane] = __shfl_xor_sync(0x0000FFFFu, lane + turn, 1);
  } else {
    out[lane] = __shfl_xor_sync(0xFFFF0000u, lane, 12);  // 16..19 read lanes that left
  }
  __syncwarp();
}

TEST(Simt, PartsOfAWarpMeetAndLanesThatLeftGiveGarbage) {
  for (const FiberOrder order : kThreadOrders) {
    SCOPED_TRACE(static_cast<int>(order));
    const SimulatedScope scope({.fiber_order = order});
    const Array<int> array(std::vector<int>(32));
    launch("half_warps", half_warps_kernel, {.blocks = {1}, .threads = {32}}, array.stream(), array.data());
    const std::vector<int> out = array.read();
    for (int lane = 0; lane < 16; ++lane) EXPECT_EQ(out[static_cast<std::size_t>(lane)], (lane ^ 1) + 2);
    for (int lane = 16; lane < 24; ++lane) EXPECT_EQ(out[static_cast<std::size_t>(lane)], (lane ^ 12) < 24 ? lane ^ 12 : -1);
  }
}

// ---- what is found

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

TEST(Simt, LaunchesThatNoGpuWouldTakeAreRefused) {
  const SimulatedScope scope;
  const Array<int> array({1});
  const auto message = [&](const LaunchShape& shape, cudaStream_t stream) {
    return error_of<InternalError>([&] { launch("past_the_end", past_the_end_kernel, shape, stream, array.data(), 0); });
  };
  EXPECT_EQ(message({.blocks = {1}, .threads = {1025}}, array.stream()),
            "kernel past_the_end with 1 x 1 x 1 blocks of 1025 x 1 x 1 threads and 0 bytes of shared memory: "
            "cudaErrorInvalidConfiguration (invalid "
            "configuration argument) on CUDA device 0; please report it");
  EXPECT_NE(message({.blocks = {1, 65536}, .threads = {1}}, array.stream()), "no error");
  EXPECT_NE(message({.blocks = {1}, .threads = {0}}, array.stream()), "no error");
  cudaStream_t gone = nullptr;
  check_cuda(cudaStreamCreate(&gone), "test");
  check_cuda(cudaStreamDestroy(gone), "test");
  EXPECT_NE(message({.blocks = {1}, .threads = {1}}, gone), "no error");
  EXPECT_EQ(message({.blocks = {1}, .threads = {1}}, array.stream()), "no error");
}

}  // namespace
}  // namespace trident::testing
