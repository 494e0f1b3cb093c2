// The communicators of device memory, and how to make them.
#pragma once

#include <memory>

#include "parallel/cuda/cuda_backend.h"
#include "parallel/cuda/device_communicator.h"
#include "parallel/cuda/host_staged_communicator.h"
#include "parallel/cuda/nccl_options.h"

namespace trident {

struct DeviceCommunicatorOptions {
  HostStagedOptions staged;
  NcclOptions nccl;
};

// The group of `host`, a communicator of host memory that nobody else uses from now on, for operands on the GPU of `place`.
// Collective over the group. Streams passed to its operations are CudaStreams of that GPU. place.progress outlives it.
std::unique_ptr<Communicator> make_device_communicator(DeviceTransport transport, std::unique_ptr<Communicator> host,
                                                       const DevicePlace& place, const DeviceCommunicatorOptions& options = {});

}  // namespace trident
