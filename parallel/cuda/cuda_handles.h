// Streams and events of CUDA that communicators keep for themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

namespace trident {

// A stream beside all others; work still on it is waited for when it ends.
class CudaQueue {
 public:
  explicit CudaQueue(int device);
  ~CudaQueue();
  CudaQueue(CudaQueue&& other) noexcept : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}
  CudaQueue& operator=(CudaQueue&&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
};

// A point of a stream, without times.
class CudaEvent {
 public:
  explicit CudaEvent(int device);
  ~CudaEvent();
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&&) = delete;

  void record(cudaStream_t stream);
  bool done() const;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace trident
