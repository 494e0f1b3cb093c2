// The communicator of device memory that goes through pinned memory and the host's communicator: ranks are processes or threads, on
// one GPU or several, with or without NCCL. Sums have the bits of the host's.
//
// Collectives of a communicator run one after another, cut into pieces of half the staging buffer (less for many ranks); messages
// have a buffer for every peer and direction, allocated when first used. Operations advance when the rank polls.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/cuda/lane_communicator.h"
#include "parallel/cuda/staged_operation.h"

namespace trident {

struct HostStagedOptions {
  std::int64_t collective_bytes = std::int64_t{16} << 20;  // of a communicator
  std::int64_t message_bytes = std::int64_t{4} << 20;      // of one direction to or from one peer
};

class HostStagedCommunicator final : public LaneCommunicator<StagedOperation> {
 public:
  // place.staging: memory that the host's communicator takes operands from; it is page-locked here if it is not yet.
  HostStagedCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place, const HostStagedOptions& options = {});
  ~HostStagedCommunicator() override { leave(); }

 private:
  StagedOperation make_operation() override { return StagedOperation(group(), copies_); }
  std::unique_ptr<Lane> make_lane(const CollectiveCall& call, const std::string& name) override;
  std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> host) override {
    return std::make_unique<HostStagedCommunicator>(std::move(host), place(), options_);
  }
  Buffer allocate(std::int64_t bytes, const std::string& name) const;

  HostStagedOptions options_;
  StagedCopies copies_;
};

}  // namespace trident
