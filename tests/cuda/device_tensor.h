// Operands in device memory for tests of the CUDA backend: a TestTensor's values there and back, with guard bytes behind them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "tests/device/operands.h"

namespace trident {

// A stream for one test.
class TestStream {
 public:
  TestStream() { check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), "a test's stream"); }
  ~TestStream() { (void)cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  cudaStream_t get() const { return stream_; }
  void synchronize() const { check_cuda(cudaStreamSynchronize(stream_), "a test's stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

inline TestTensor numbers(Shape shape, float first, DType dtype = DType::kF32) {
  TestTensor t(dtype, shape);
  for (std::int64_t i = 0; i < shape.num_elements(); ++i) t.set(i, first + static_cast<float>(i % 17));
  return t;
}

class DeviceTensor {
 public:
  // Uploads `host`; the first element lies `misalign` elements behind a multiple of 256 bytes.
  explicit DeviceTensor(const TestTensor& host, std::int64_t misalign = 0, int device = 0)
      : buffer_(allocate_cuda(device, host.view().num_bytes() + kGuard + misalign * size_of(host.view().dtype()), "test tensor")),
        view_(buffer_.data() + misalign * size_of(host.view().dtype()), host.view().dtype(), host.view().shape(),
              MemoryKind::kDevice) {
    if (!view_.empty()) copy(view_.data(), host.view().data(), view_.num_bytes(), cudaMemcpyHostToDevice);
    const std::vector<std::byte> guard(kGuard, std::byte{0xA5});
    copy(view_.data() + view_.num_bytes(), guard.data(), kGuard, cudaMemcpyHostToDevice);
    // A copy from pageable memory may still be under way to the device, and no stream of a test waits for it.
    check_cuda(cudaDeviceSynchronize(), "a test's tensor");
  }

  TensorView view() const { return view_; }
  TestTensor download() const {
    TestTensor host(view_.dtype(), view_.shape());
    if (!view_.empty()) copy(host.view().data(), view_.data(), view_.num_bytes(), cudaMemcpyDeviceToHost);
    return host;
  }
  bool guards_intact() const {
    std::vector<std::byte> guard(kGuard);
    copy(guard.data(), view_.data() + view_.num_bytes(), kGuard, cudaMemcpyDeviceToHost);
    return guard == std::vector<std::byte>(kGuard, std::byte{0xA5});
  }

 private:
  static constexpr std::int64_t kGuard = 256;

  static void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
    check_cuda(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), kind), "a test's tensor");
  }

  Buffer buffer_;
  TensorView view_;
};

}  // namespace trident
