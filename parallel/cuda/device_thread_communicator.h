// The communicator of device memory between ranks that are threads of one process, on one GPU or on GPUs that reach each other's
// memory. Sums are taken in rank order: the bits of the host's communicators. Nothing is copied to the host and no memory is
// needed.
//
// Collectives of a communicator run one after another, and so do the messages of an ordered pair. Operations advance when the rank
// polls.
#pragma once

#include <memory>

#include "parallel/cuda/device_thread_operation.h"
#include "parallel/cuda/lane_communicator.h"

namespace trident {

class DeviceThreadCommunicator final : public LaneCommunicator<DeviceThreadOperation> {
 public:
  // Collective over the group. ConfigError on all ranks if a GPU cannot reach another one's memory, or there are more ranks than a
  // kernel adds up.
  DeviceThreadCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place);
  ~DeviceThreadCommunicator() override { leave(); }

 private:
  DeviceThreadOperation make_operation() override { return DeviceThreadOperation(group(), work_); }
  std::unique_ptr<Lane> make_lane(const CollectiveCall& call, const std::string& name) override;
  std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> host) override {
    return std::make_unique<DeviceThreadCommunicator>(std::move(host), place());
  }
  void reach_peers();

  DeviceThreadWork work_;
};

}  // namespace trident
