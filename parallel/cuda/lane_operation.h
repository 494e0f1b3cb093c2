// An operation of device memory that hosts drive: they agree on what was called, move data, and are done.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
  bool is_message() const { return call_.operation == CommOperation::kSend || call_.operation == CommOperation::kRecv; }
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

}  // namespace trident
