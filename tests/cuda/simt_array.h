// Device memory for tests of the language of kernels.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "device/cuda/cuda_error.h"
#include "tests/cuda/simulated_scope.h"

namespace trident::testing {

using simulated::FiberOrder;

inline constexpr FiberOrder kThreadOrders[] = {FiberOrder::kForward, FiberOrder::kReverse, FiberOrder::kRandom,
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

// Runs `launch_on(array)` in every order of threads and returns the array, which must be the same each time.
template <class T, class Launch>
std::vector<T> in_every_order(const std::vector<T>& start, Launch launch_on) {
  std::vector<T> first;
  for (const FiberOrder order : kThreadOrders) {
    simulated::Settings settings;
    settings.fiber_order = order;
    const SimulatedScope scope(settings);
    const Array<T> array(start);
    launch_on(array);
    const std::vector<T> values = array.read();
    if (first.empty()) first = values;
    EXPECT_EQ(values, first) << "order " << static_cast<int>(order);
  }
  return first;
}

}  // namespace trident::testing
