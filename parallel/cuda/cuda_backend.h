// The trainer's interface to CUDA: the GPUs, a device per rank, and communicators between devices.
//
// Implemented by parallel/cuda over device/cuda, or by its twin parallel/no_cuda in binaries built without CUDA; which one is decided
// when the program is linked. A binary built with CUDA also runs where there is no GPU or no driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda_options.h"
#include "device/buffer.h"
#include "device/cuda_facts.h"
#include "device/device.h"
#include "device/host/doorbell.h"
#include "parallel/communicator/communicator.h"
#include "parallel/cuda/transport_choice.h"
#include "parallel/grid/process_grid.h"

namespace trident {

class CudaBackend {
 public:
  virtual ~CudaBackend() = default;

  // Asked of the driver once; no GPU is opened by it (device/cuda/cuda_gpus.h says what that means).
  virtual const CudaFacts& facts() = 0;
  // Opens GPU `number`, if it is not yet. Why it cannot be used, with the remedy; empty if it can.
  virtual std::string open_gpu(int number) = 0;
  // Gives back a GPU that was opened and on which no device was made.
  virtual void close_gpu(int number) = 0;
  // Free memory of a GPU that is open, in bytes. ConfigError or CommunicationError where that cannot be asked.
  virtual std::int64_t free_bytes(int number) = 0;
  // GPU `number` as the device of the calling rank; peers ring `doorbell`, which outlives it. ConfigError if it cannot be used.
  // `host_memory`: of Device::allocate_host_shared() (ProcessWorld::allocate, say); not set: memory of this process.
  virtual std::unique_ptr<Device> make_device(int number, Doorbell& doorbell, HostAllocator host_memory, const CudaOptions& options) = 0;
  // The same group as `host`, whose ranks lie along `axis`, for operands on `device`, which make_device() made and which outlives the result.
  // Collective over the group; NCCL's options are the device's.
  virtual std::unique_ptr<Communicator> on_device(DeviceTransport transport, Device& device, Axis axis, std::unique_ptr<Communicator> host) = 0;
};

std::unique_ptr<CudaBackend> make_cuda_backend();

}  // namespace trident
