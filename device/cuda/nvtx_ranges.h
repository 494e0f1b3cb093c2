// Ranges told to the profiler that is attached to this process (Nsight Systems, Nsight Compute) through NVTX.
#pragma once

#include <cstdint>
#include <memory>

#include "device/ranges.h"

struct nvtxDomainRegistration_st;

namespace trident {

class NvtxRanges final : public Ranges {
 public:
  // Nothing where no profiler is attached.
  static std::unique_ptr<NvtxRanges> attach();
  ~NvtxRanges() override;

  std::uint64_t start(const char* name) override;
  void end(std::uint64_t range) noexcept override;

 protected:
  void push(const char* name) override;
  void pop() noexcept override;

 private:
  explicit NvtxRanges(nvtxDomainRegistration_st* domain) : domain_(domain) {}

  nvtxDomainRegistration_st* domain_;
};

}  // namespace trident
