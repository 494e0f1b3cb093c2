// A CUDA backend without GPUs, for runs on CPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/check.h"
#include "parallel/cuda/cuda_backend.h"

namespace trident::testing {

class NoGpus final : public CudaBackend {
 public:
  const CudaFacts& facts() override { return facts_; }
  std::string open_gpu(int) override { return "no GPUs in this test"; }
  void close_gpu(int) override {}
  std::int64_t free_bytes(int) override { return 0; }
  std::unique_ptr<Device> make_device(int, Doorbell&, HostAllocator, const CudaOptions&) override {
    throw InternalError("no GPUs in this test");
  }
  std::unique_ptr<Communicator> on_device(DeviceTransport, Device&, Axis, std::unique_ptr<Communicator>) override {
    throw InternalError("no GPUs in this test");
  }

 private:
  CudaFacts facts_;
};

}  // namespace trident::testing
