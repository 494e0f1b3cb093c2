// A device communicator whose operations are LaneOperations. Collectives of a communicator run one after another, whatever streams
// they are on; so do the messages of an ordered pair of ranks. What holds up one of these lanes holds up no other.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/check.h"
#include "parallel/cuda/device_communicator.h"
#include "parallel/cuda/lane_operation.h"

namespace trident {

// Operation: a LaneOperation made from `make_operation`; Lanes are made by `make_lane(name)` when first used.
template <class Operation> class LaneCommunicator : public DeviceCommunicator {
 protected:
  LaneCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place)
      : DeviceCommunicator(std::move(host), place),
        group_{&this->host(), &progress(), rank(), global_ranks(), CollectiveChecks::kOn},
        to_(global_ranks().size()),
        from_(global_ranks().size()),
        operations_(CpuStream::kCapacity),
        batches_(CpuStream::kCapacity) {
    prepared_.reserve(kCalls);
  }

  // To be called by the destructors of derived classes: while what operations use still exists.
  void leave() {
    group_cancel();
    const std::string pending = operations_.describe_pending();
    if (!pending.empty())
      host().abort(fmt::format("rank {} left with operations pending: {}", global_rank_of(rank()), pending));
    release_host();  // before the lanes, whose memory peers may be reading
  }

  virtual Operation make_operation() = 0;
  virtual std::unique_ptr<Lane> make_lane(const CollectiveCall& call, const std::string& name) = 0;

  LaneGroup& group() { return group_; }

 private:
  void run(CudaStream& stream, std::span<const CollectiveCall> calls) final {
    group_.checks = checks();
    std::vector<CommunicatorOperation*>& prepared = prepared_;
    prepared.clear();
    for (const CollectiveCall& call : calls) {
      Operation& operation = operations_.take(progress(), [&] { return make_operation(); });
      operation.prepare(call, lane_of(call));
      prepared.push_back(&operation);
    }
    CommunicatorOperation* whole = prepared.front();
    if (prepared.size() > 1) {
      BatchOperation& batch = batches_.take(progress(), [] { return BatchOperation(); });
      batch.prepare(prepared);
      whole = &batch;
    }
    whole->issue();
    stream.enqueue(*whole);
  }

  void meet() final {
    group_.checks = checks();
    Operation& operation = operations_.take(progress(), [&] { return make_operation(); });
    const CollectiveCall call;
    operation.prepare(call, lane_of(call));
    operation.issue();
    progress().wait_until([&] { return operation.poll(); }, [&] { return operation.describe(); });
  }

  Lane& lane_of(const CollectiveCall& call) {
    const auto peer = static_cast<std::size_t>(std::max(call.root, 0));
    const bool sends = call.operation == CommOperation::kSend, receives = call.operation == CommOperation::kRecv;
    std::unique_ptr<Lane>& lane = sends ? to_[peer] : receives ? from_[peer] : collectives_;
    if (lane == nullptr) {
      const std::string what = sends ? fmt::format("messages to rank {}", global_ranks()[peer])
                               : receives ? fmt::format("messages from rank {}", global_ranks()[peer]) : "collectives";
      lane = make_lane(call, fmt::format("{} over {}", what, name()));
    }
    return *lane;
  }

  LaneGroup group_;
  std::unique_ptr<Lane> collectives_;
  std::vector<std::unique_ptr<Lane>> to_, from_;  // by peer
  OperationPool<Operation> operations_;
  OperationPool<BatchOperation> batches_;
  std::vector<CommunicatorOperation*> prepared_;  // of the run under way
};

}  // namespace trident
