// The communicator of device memory between ranks that are threads of one process, on one GPU or on GPUs that reach each other's
// memory. Sums are taken in rank order: the bits of the host's communicators. Nothing is copied to the host and no memory is
// needed.
//
// Collectives of a communicator run one after another, and so do the messages of an ordered pair. Operations advance when the rank
// polls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/cuda/cuda_handles.h"
#include "parallel/cuda/lane_operation.h"

namespace trident {

// The operations of a communicator share this, besides lanes.
struct DeviceThreadWork {
  DeviceThreadWork(int number, int ranks, std::unique_ptr<Communicator> back)
      : device(number), queue(number), acknowledgements(std::move(back)), sources(static_cast<std::size_t>(ranks)) {}
  int device;
  CudaQueue queue;
  std::unique_ptr<Communicator> acknowledgements;  // of the same ranks: receivers tell senders that they are done
  std::vector<const void*> sources;                // scratch
};

// An operation between devices of rank threads, whose kernels and copies work in their peers' buffers.
//
// The ranks tell each other where their operands lie. Of an all_reduce each then adds up its share of the elements, which nobody
// else touches in any buffer, and copies the result into every rank's; of a reduce_scatter it adds up its slice; everything else is
// copies from peers. At the end each waits until all are done, for until then they are inside its buffers.
class DeviceThreadOperation final : public LaneOperation {
 public:
  DeviceThreadOperation(LaneGroup& group, DeviceThreadWork& work)
      : LaneOperation(group, Records::kAlways), work_(&work), moved_(work.device) {}

 private:
  void start() override;
  bool advance() override;
  std::string describe_move() const override;

  void move();
  void reduce();
  void copy_slices(std::int64_t offset);
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes);
  void tell_done();

  enum class Step : std::uint8_t { kMoving, kAwaitingPeers };
  DeviceThreadWork* work_;
  CudaEvent moved_;
  Step step_ = Step::kMoving;
  Event told_done_;
};

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
