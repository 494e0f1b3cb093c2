#include "parallel/cuda/host_staged_communicator.h"

#include <cstdint>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"

namespace trident {

HostStagedCommunicator::HostStagedCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place,
                                               const HostStagedOptions& options)
    : LaneCommunicator(std::move(host), place), options_(options), copies_(place.device) {}

Buffer HostStagedCommunicator::allocate(std::int64_t bytes, const std::string& name) const {
  if (!place().staging) return allocate_pinned(bytes, name);
  auto memory = std::make_shared<Buffer>(place().staging(bytes, name));
  if (memory->where() == MemoryKind::kPinned) return std::move(*memory);
  use_cuda_device(place().device);
  check_cuda(cudaHostRegister(memory->data(), static_cast<std::size_t>(bytes), cudaHostRegisterDefault),
             fmt::format("page-locking {} bytes of shared memory for {}", bytes, name));
  void* const data = memory->data();
  return {data, bytes, MemoryKind::kPinned, [memory](void* locked, std::int64_t) { cudaHostUnregister(locked); }};
}

std::unique_ptr<Lane> HostStagedCommunicator::make_lane(const CollectiveCall& call, const std::string& name) {
  const bool message = call.operation == CommOperation::kSend || call.operation == CommOperation::kRecv;
  return std::make_unique<Lane>(name, size(), message ? options_.message_bytes : options_.collective_bytes,
                                [this](std::int64_t bytes, const std::string& what) { return allocate(bytes, what); }, progress());
}

}  // namespace trident
