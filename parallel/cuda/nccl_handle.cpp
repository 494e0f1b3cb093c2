#include "parallel/cuda/nccl_handle.h"

#include <fmt/core.h>

#include <utility>

#include "device/cuda/cuda_error.h"
#include "device/no_allocation.h"
#include "parallel/cuda/nccl_arguments.h"

namespace trident {

NcclHandle::NcclHandle(int device, std::string name, int max_ctas)
    : device_(device), name_(std::move(name)), max_ctas_(max_ctas), last_(device) {}

ncclResult_t NcclHandle::join(const ncclUniqueId& id, int ranks, int rank) {
  use_cuda_device(device_);
  ncclConfig_t config = nccl_config(name_.c_str(), max_ctas_);
  const AllocationExemption library;
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
  const AllocationExemption library;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked != ncclSuccess ? asked : state;
}

std::string NcclHandle::explain(ncclResult_t result) const {
  const AllocationExemption message;
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

std::string NcclHandle::register_memory(void* data, std::size_t bytes, Progress& progress) {
  use_cuda_device(device_);
  void* handle = nullptr;
  const AllocationExemption library;
  const ncclResult_t result = settle(ncclCommRegister(comm_, data, bytes, &handle), progress);
  if (result != ncclSuccess) return explain(result);
  if (handle == nullptr) return "passed over; NCCL_LOCAL_REGISTER=0 does that, and so does NCCL_P2P_USE_CUDA_MEMCPY";
  registered_.push_back(handle);
  return {};
}

ncclResult_t NcclHandle::deregister(Progress& progress) {
  use_cuda_device(device_);
  const AllocationExemption library;
  ncclResult_t worst = ncclSuccess;
  for (void* handle : registered_)
    if (const ncclResult_t result = settle(ncclCommDeregister(comm_, handle), progress); result != ncclSuccess) worst = result;
  registered_.clear();
  return worst;
}

ncclResult_t NcclHandle::finish(Progress& progress) {
  if (comm_ == nullptr) return ncclSuccess;
  deregister(progress);  // what the library does not take back now it does with the communicator
  const auto finalize = [&] {
    const AllocationExemption library;
    return ncclCommFinalize(comm_);
  };
  const ncclResult_t result = settle(finalize(), progress);
  if (result != ncclSuccess) return result;
  const AllocationExemption library;
  return ncclCommDestroy(std::exchange(comm_, nullptr));
}

void NcclHandle::abort() noexcept {
  if (comm_ == nullptr) return;
  cudaSetDevice(device_);
  const AllocationExemption library;
  registered_.clear();  // given back with the rest
  ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace trident
