// An operation of device memory that hosts drive: they agree on what was called, move data, and are done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/communicator/pending_collective.h"
#include "parallel/cuda/device_communicator.h"
#include "parallel/cuda/lane.h"

namespace trident {

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
