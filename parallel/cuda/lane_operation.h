// An operation of device memory that hosts drive: they agree on what was called, move data, and are done.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/int_math.h"
#include "device/buffer.h"
#include "device/host/cpu_stream.h"
#include "parallel/communicator/pending_collective.h"
#include "parallel/cuda/call_record.h"
#include "parallel/cuda/device_communicator.h"

namespace trident {

// Where host operations of a device communicator follow one another: one lane for its collectives, one for the messages to each
// peer and one for those from it. At most one operation of a lane is under way, so lanes own what such an operation needs.
class Lane {
 public:
  // Room for the records of `ranks` ranks and for `data_bytes` bytes behind them, in memory that peers reach.
  Lane(const std::string& name, int ranks, std::int64_t data_bytes, const HostAllocator& allocate, Progress& progress)
      : stream_(name, CpuStream::Mode::kQueue, progress),
        ranks_(ranks),
        data_offset_(round_up((1 + ranks) * kRecordWords * 8, std::int64_t{4096})),
        memory_(allocate(round_up(data_offset_ + data_bytes, std::int64_t{4096}), name)) {}  // whole pages can be locked

  CpuStream& stream() { return stream_; }
  TensorView mine() { return {memory_.data(), DType::kI64, {kRecordWords}}; }
  TensorView all() { return {memory_.data() + kRecordWords * 8, DType::kI64, {ranks_ * kRecordWords}}; }
  std::byte* data() { return memory_.data() + data_offset_; }
  std::int64_t data_bytes() const { return memory_.num_bytes() - data_offset_; }
  const Buffer& memory() const { return memory_; }

  // Operations take turns in the order in which they drew tickets.
  std::uint64_t draw() { return drawn_++; }
  bool is_turn_of(std::uint64_t ticket) const { return done_ == ticket; }
  void end_turn() { ++done_; }

 private:
  CpuStream stream_;
  std::int64_t ranks_, data_offset_;
  Buffer memory_;
  std::uint64_t drawn_ = 0, done_ = 0;
};

// All operations of a rank on one communicator share this.
struct LaneGroup {
  Communicator* host = nullptr;
  Progress* progress = nullptr;
  int rank = 0;
  std::vector<int> global_ranks;
  CollectiveChecks checks = CollectiveChecks::kOn;

  std::string_view name() const { return host->name(); }
  int size() const { return static_cast<int>(global_ranks.size()); }
};

class LaneOperation : public CommunicatorOperation {
 public:
  void prepare(const CollectiveCall& call, Lane& lane);
  void issue() final;
  bool poll() final;
  std::string describe() const final;

 protected:
  // Whether collectives tell each other what they called even where nothing is compared, for the operands' addresses.
  enum class Records : std::uint8_t { kWhereCompared, kAlways };
  LaneOperation(LaneGroup& group, Records records) : group_(&group), records_(records) {}
  ~LaneOperation() override = default;

  // The ranks agree and it is this operation's turn.
  virtual void start() = 0;
  // Advances without blocking; true once data are in place here and peers have no more use for this rank's operand.
  virtual bool advance() = 0;
  // Says what advance() waits for.
  virtual std::string describe_move() const = 0;

  LaneGroup& group() const { return *group_; }
  const CollectiveCall& call() const { return call_; }
  Lane& lane() const { return *lane_; }
  bool is_message() const { return call_.is_message(); }
  // The address that rank `rank` told, or the sender of a message.
  std::byte* operand_of(int rank) const;

 private:
  enum class Phase : std::uint8_t { kPrepared, kIssued, kAgreeing, kMoving };

  void tell();
  void compare() const;
  CallRecord told_by(int rank) const;

  LaneGroup* group_;
  Records records_;
  CollectiveCall call_;
  Lane* lane_ = nullptr;
  std::uint64_t ticket_ = 0;
  Phase phase_ = Phase::kPrepared;
  Event told_;
};

// A device communicator whose operations are LaneOperations. Collectives of a communicator run one after another, whatever streams
// they are on; so do the messages of an ordered pair of ranks. What holds up one of these lanes holds up no other.
//
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
