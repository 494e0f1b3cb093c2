// Devices by name, for programs.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"
#include "device/host/doorbell.h"
#include "parallel/cuda/cuda_backend.h"

namespace trident::conformance {

class NamedDevice {
 public:
  // "cpu" (with this many threads), "cuda" or "cuda:1", of the backend that is linked in (with these
  // options). Throws ConfigError if there is no such device.
  NamedDevice(const std::string& name, int threads, const CudaOptions& cuda = {});

  Device& operator*() { return *device_; }
  Device* operator->() { return device_.get(); }

 private:
  Doorbell bell_;
  std::unique_ptr<CudaBackend> cuda_;
  std::unique_ptr<Device> device_;
};

}  // namespace trident::conformance
