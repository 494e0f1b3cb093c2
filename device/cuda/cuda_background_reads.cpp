#include "device/cuda/cuda_background_reads.h"

#include <memory>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"

namespace trident {
namespace {

constexpr int kLowestPriority = 0;
constexpr std::int64_t kPage = 4096;
constexpr const char* kWhat = "copying values for a checkpoint from the device";

// A thread that waits sleeps: the cores are for those who compute and launch.
cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making an event");
  return event;
}

}  // namespace

CudaBackgroundReads::CudaBackgroundReads(CudaStream& compute, std::size_t marks) : compute_(compute), device_(compute.device()) {
  use_cuda_device(device_);
  try {
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, kLowestPriority), "making a stream");
    values_are_there_ = new_event();
    all_ = new_event();
    marks_.resize(marks);
    for (cudaEvent_t& event : marks_) event = new_event();
  } catch (...) {
    destroy();
    throw;
  }
}

CudaBackgroundReads::~CudaBackgroundReads() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
  destroy();
}

// Resources that cannot be given back now, after a failure of the device, go with the process.
void CudaBackgroundReads::destroy() {
  for (const cudaEvent_t event : marks_)
    if (event != nullptr) cudaEventDestroy(event);
  for (const cudaEvent_t event : {values_are_there_, all_})
    if (event != nullptr) cudaEventDestroy(event);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Buffer CudaBackgroundReads::allocate(std::int64_t bytes, const std::string& name) {
  if (bytes == 0) return {};
  use_cuda_device(device_);
  // CUDA cuts small pieces out of larger ones.
  const auto whole = std::make_shared<Buffer>(allocate_pinned(bytes + kPage, name));
  const auto address = reinterpret_cast<std::uintptr_t>(whole->data());
  return {whole->data() + (kPage - address % kPage) % kPage, bytes, MemoryKind::kPinned, [whole](void*, std::int64_t) {}};
}

void CudaBackgroundReads::begin() {
  check_cuda(cudaEventRecord(values_are_there_, compute_.handle()), kWhat);
  check_cuda(cudaStreamWaitEvent(stream_, values_are_there_, 0), kWhat);
}

void CudaBackgroundReads::hold(std::size_t mark) {
  check_cuda(cudaStreamWaitEvent(compute_.handle(), marks_.at(mark), 0), kWhat);
}

void CudaBackgroundReads::read(void* to, ConstTensorView from) {
  TRIDENT_CHECK(from.where() == MemoryKind::kDevice || from.empty(), "a read from {} bytes of host memory", from.num_bytes());
  if (from.empty()) return;
  use_cuda_device(device_);
  check_cuda(cudaMemcpyAsync(to, from.data(), static_cast<std::size_t>(from.num_bytes()), cudaMemcpyDeviceToHost, stream_), kWhat);
}

void CudaBackgroundReads::mark(std::size_t mark) { record(marks_.at(mark)); }

void CudaBackgroundReads::wait(std::size_t mark) { wait_for(marks_.at(mark)); }

void CudaBackgroundReads::wait_all() {
  record(all_);
  wait_for(all_);
}

void CudaBackgroundReads::record(cudaEvent_t event) {
  use_cuda_device(device_);
  check_cuda(cudaEventRecord(event, stream_), kWhat);
}

void CudaBackgroundReads::wait_for(cudaEvent_t event) {
  use_cuda_device(device_);
  check_cuda(cudaEventSynchronize(event), kWhat);
}

}  // namespace trident
