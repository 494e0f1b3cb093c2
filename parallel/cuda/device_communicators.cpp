#include "parallel/cuda/device_communicators.h"

#include "core/check.h"
#include "parallel/cuda/device_thread_communicator.h"
#include "parallel/cuda/nccl_communicator.h"

namespace trident {

std::unique_ptr<Communicator> make_device_communicator(DeviceTransport transport, std::unique_ptr<Communicator> host,
                                                       const DevicePlace& place, const DeviceCommunicatorOptions& options) {
  switch (transport) {
    case DeviceTransport::kThread: return std::make_unique<DeviceThreadCommunicator>(std::move(host), place);
    case DeviceTransport::kHostStaged: return std::make_unique<HostStagedCommunicator>(std::move(host), place, options.staged);
    case DeviceTransport::kNccl: return std::make_unique<NcclCommunicator>(std::move(host), place, options.nccl);
    case DeviceTransport::kNcclEvenAlone: {
      NcclOptions nccl = options.nccl;
      nccl.alone = NcclOptions::Alone::kJoins;
      return std::make_unique<NcclCommunicator>(std::move(host), place, nccl);
    }
  }
  throw InternalError("a device transport that does not exist");
}

}  // namespace trident
