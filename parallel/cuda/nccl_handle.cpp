#include "parallel/cuda/nccl_handle.h"

#include <fmt/core.h>

#include <utility>

#include "device/cuda/cuda_error.h"
#include "parallel/cuda/nccl_arguments.h"

namespace trident {

NcclHandle::NcclHandle(int device, std::string name, int max_ctas)
    : device_(device), name_(std::move(name)), max_ctas_(max_ctas), last_(device) {}

ncclResult_t NcclHandle::join(const ncclUniqueId& id, int ranks, int rank) {
  use_cuda_device(device_);
  ncclConfig_t config = nccl_config(name_.c_str(), max_ctas_);
  return ncclCommInitRankConfig(&comm_, ranks, id, rank, &config);
}

ncclResult_t NcclHandle::settle(ncclResult_t result, Progress& progress) {
  if (result != ncclInProgress) return result;
  progress.wait_until([&] { return (result = asynchronous_error()) != ncclInProgress; },
                      [&] { return fmt::format("NCCL's communicator of {}: busy", name_); });
  return result;
}

ncclResult_t NcclHandle::asynchronous_error() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked != ncclSuccess ? asked : state;
}

std::string NcclHandle::explain(ncclResult_t result) const {
  const char* const last = ncclGetLastError(comm_);
  const bool more = last != nullptr && *last != '\0';
  return fmt::format("{}{}", ncclGetErrorString(result), more ? fmt::format(" ({})", last) : "");
}

void NcclHandle::enter(cudaStream_t stream) {
  if (used_ && stream != last_stream_) check_cuda(cudaStreamWaitEvent(stream, last_.get(), 0), name_);
}

void NcclHandle::leave(cudaStream_t stream) {
  last_.record(stream);
  last_stream_ = stream;
  used_ = true;
}

ncclResult_t NcclHandle::register_memory(void* data, std::size_t bytes) {
  void* handle = nullptr;
  const ncclResult_t result = ncclCommRegister(comm_, data, bytes, &handle);
  if (result == ncclSuccess && handle != nullptr) registered_.push_back(handle);
  return result;
}

void NcclHandle::deregister() noexcept {
  for (void* handle : registered_) ncclCommDeregister(comm_, handle);
  registered_.clear();
}

ncclResult_t NcclHandle::finish(Progress& progress) {
  if (comm_ == nullptr) return ncclSuccess;
  use_cuda_device(device_);
  deregister();
  const ncclResult_t result = settle(ncclCommFinalize(comm_), progress);
  if (result != ncclSuccess) return result;
  return ncclCommDestroy(std::exchange(comm_, nullptr));
}

void NcclHandle::abort() noexcept {
  if (comm_ == nullptr) return;
  cudaSetDevice(device_);
  registered_.clear();  // given back with the rest
  ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace trident
