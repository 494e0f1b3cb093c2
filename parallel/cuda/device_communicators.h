// The communicators of device memory: which one fits, and how to make it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/cuda/device_communicator.h"
#include "parallel/cuda/host_staged_communicator.h"
#include "parallel/cuda/nccl_options.h"
#include "parallel/cuda_backend.h"

namespace trident {

struct TransportFacts {
  enum class Ranks : std::uint8_t { kThreads, kProcesses } ranks = Ranks::kThreads;
  std::vector<std::string> cards;  // of every rank: CardFacts::id
  bool nccl = true;                // the library is there
};

struct TransportChoice {
  DeviceTransport transport = DeviceTransport::kThread;
  std::string why;  // "8 ranks are threads of this process"; for one line of the log
};

// Threads work in each other's buffers; processes that have a card each use NCCL; others go through the host.
TransportChoice choose_transport(const TransportFacts& facts);

struct DeviceCommunicatorOptions {
  HostStagedOptions staged;
  NcclOptions nccl;
};

// The group of `host`, a communicator of host memory that nobody else uses from now on, for operands on the card of `place`.
// Collective over the group. Streams passed to its operations are CudaStreams of that card. place.progress outlives it.
std::unique_ptr<Communicator> make_device_communicator(DeviceTransport transport, std::unique_ptr<Communicator> host,
                                                       const DevicePlace& place, const DeviceCommunicatorOptions& options = {});

}  // namespace trident
