// The cuDNN library on one device.
#pragma once

#include <cudnn_graph.h>

namespace trident {

// Owner of a library handle. Not thread-safe: a handle has one stream at a time.
class CudnnHandle {
 public:
  // Throws ConfigError if the library is too old or cannot be used on this device.
  explicit CudnnHandle(int device);
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  cudnnHandle_t get() const { return handle_; }
  int device() const { return device_; }
  // Major number of the device's compute capability: 8 Ampere, 9 Hopper, 10 and 12 Blackwell.
  int compute_major() const { return compute_major_; }
  // Makes the device the calling thread's and `stream` the handle's.
  void use(cudaStream_t stream) const;

 private:
  int device_ = 0, compute_major_ = 0;
  cudnnHandle_t handle_ = nullptr;
};

}  // namespace trident
