#include "parallel/cuda/cuda_handles.h"

#include "device/cuda/cuda_error.h"

namespace trident {

CudaQueue::CudaQueue(int device) : device_(device) {
  use_cuda_device(device);
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream for a communicator");
}

// A failure here happened before, and was said then.
CudaQueue::~CudaQueue() {
  if (stream_ == nullptr) return;
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

CudaEvent::CudaEvent(int device) {
  use_cuda_device(device);
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event for a communicator");
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void CudaEvent::record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "marking a communicator's work"); }

bool CudaEvent::done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, "asking whether a communicator's work is done");
  return true;
}

}  // namespace trident
