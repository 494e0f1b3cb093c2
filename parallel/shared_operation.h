// The operations of a SharedMemoryCommunicator as state machines that a stream polls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "parallel/comm_operation.h"
#include "parallel/host_communicator.h"
#include "parallel/shared_world.h"

namespace trident {

// One rank's place in a group: what all of its operations on the group's communicator have in common.
struct SharedGroup {
  SharedWorld* world = nullptr;
  GroupBlock block;
  std::string name;
  int rank = 0;            // within the group
  std::vector<int> seats;  // of the group's ranks in the SharedWorld, in group order
  std::vector<int> names;  // their world ranks, for messages: the seats, unless there are other nodes
  CollectiveChecks checks = CollectiveChecks::kOn;
  std::vector<const std::byte*> sources;  // scratch of an operation that is moving data, one per rank
  std::vector<std::byte*> outs;

  int size() const { return static_cast<int>(seats.size()); }
  int seat() const { return seats[static_cast<std::size_t>(rank)]; }
  int world_rank() const { return world_rank_of(rank); }
  int world_rank_of(int r) const { return names[static_cast<std::size_t>(r)]; }
  void ring(int r) const { world->doorbell(seats[static_cast<std::size_t>(r)]).ring(); }
  void ring_others() const;
};

// What a rank does with its peers' operands where that is only a part of a larger operation.
class PeerWork {
 public:
  // operands: of the group's ranks, in order. Only this rank's own may be written.
  virtual void work(std::span<const std::byte* const> operands) = 0;

 protected:
  ~PeerWork() = default;
};

// all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier. Protocol: shared_world.h.
class CollectiveOperation final : public CommunicatorOperation {
 public:
  CollectiveOperation(SharedGroup& group, std::uint64_t& next_sequence) : group_(&group), next_sequence_(&next_sequence) {}

  // `call.in` is what peers may read.
  void prepare(const CollectiveCall& call);
  // A part of a larger operation, which `whole` describes to peers: each rank does its `work` while all may read its `operand`.
  void prepare_part(const CommFingerprint& whole, ConstTensorView operand, PeerWork& work);
  void issue() override;
  // Issues it as operation `number` in messages to users.
  void issue_as(std::uint64_t number);
  bool poll() override;
  std::string describe() const override;

 private:
  enum class Phase : std::uint8_t { kPrepared, kIssued, kPosted, kMoved };

  bool is_inline() const { return in_.num_bytes() <= kInlineBytes; }
  bool is_inside_peers() const;  // whether peers use this rank's buffers until they have finished
  CollectiveSlot& slot() const { return group_->block.slot(sequence_); }
  CollectivePost& post_of(int rank) const { return group_->block.post(sequence_, rank); }
  std::uint64_t complete_at() const;  // value of the slot's counters when all ranks have been here
  bool slot_is_free() const;
  void post();
  bool everyone_arrived() const;
  void check_agreement_with(int rank) const;
  void find_sources();
  void move();
  void reduce_and_spread();
  void copy_slices(std::int64_t source_offset);
  void finish();
  void move_alone();
  std::string missing(bool finished, std::uint64_t sequence) const;

  SharedGroup* group_;
  std::uint64_t* next_sequence_;
  Phase phase_ = Phase::kPrepared;
  std::uint64_t sequence_ = 0, number_ = 0;
  int root_ = -1;
  CommFingerprint fingerprint_;
  TensorView out_;
  ConstTensorView in_;
  PeerWork* work_ = nullptr;
};

// One side of a message between two ranks; the receiver copies straight from the sender's buffer.
class MessageOperation final : public CommunicatorOperation {
 public:
  // next_sequence: of the ordered pair, chosen in prepare().
  explicit MessageOperation(SharedGroup& group) : group_(&group) {}

  void prepare_send(ConstTensorView data, int peer, std::uint64_t& next_sequence);
  void prepare_recv(TensorView data, int peer, std::uint64_t& next_sequence);
  void issue() override;
  bool poll() override;
  std::string describe() const override;

 private:
  void prepare(CommOperation operation, ConstTensorView data, int peer, std::uint64_t& next_sequence);
  bool poll_send();
  bool poll_recv();
  ChannelSlot& slot() const;
  void check_agreement(const ChannelSlot& slot) const;

  SharedGroup* group_;
  std::uint64_t* next_sequence_ = nullptr;
  std::uint64_t sequence_ = 0;
  bool posted_ = false;
  int peer_ = -1;
  CommFingerprint fingerprint_;
  ConstTensorView data_;
  std::byte* target_ = nullptr;  // of a receive
};

}  // namespace trident
