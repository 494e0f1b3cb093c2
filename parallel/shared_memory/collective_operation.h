// The collectives of a SharedMemoryCommunicator, a state machine that a stream polls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/index_range.h"
#include "core/tensor_view.h"
#include "parallel/communicator/collective_kind.h"
#include "parallel/communicator/host_communicator.h"
#include "parallel/shared_memory/shared_group.h"

namespace trident {

// A part of the operands of a group's ranks, in order, that can be read now: bytes [begin, end) of each. All of it, or a piece.
struct PeerOperands {
  std::span<const std::byte* const> pieces;
  std::int64_t begin = 0, end = 0;

  std::size_t size() const { return pieces.size(); }
  // Byte `offset` of a rank's operand, within the part.
  const std::byte* at(std::size_t rank, std::int64_t offset) const { return pieces[rank] + (offset - begin); }
  // Cuts [first, last) to the part; empty ranges have begin == end.
  IndexRange within(std::int64_t first, std::int64_t last) const {
    const std::int64_t from = std::clamp(begin, first, last);
    return {from, std::clamp(end, from, last)};
  }
};

// The bytes of every operand that a part of a larger operation reads: `count` stretches of `bytes` bytes, the first at `first`, one
// every `stride`.
struct PeerStretches {
  std::int64_t first = 0, bytes = 0, stride = 0, count = 1;
};

// The work of a rank on its peers' operands as a part of a larger operation.
class PeerWork {
 public:
  // Called for all of the operands, or for one piece of what is read of them after another. Of them only this rank's own may be
  // written, and only where the part lies or a peer does not read.
  virtual void work(const PeerOperands& operands) = 0;

 protected:
  ~PeerWork() = default;
};

// all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier. Protocol: shared_world.h.
class CollectiveOperation final : public CommunicatorOperation {
 public:
  CollectiveOperation(SharedGroup& group, std::uint64_t& next_sequence) : group_(&group), next_sequence_(&next_sequence) {}

  // `call.in` is what peers may read.
  void prepare(const CollectiveCall& call);
  // A part of a larger operation, which `whole` describes to peers: each rank does its `work` while all may read its `operand`, of
  // which they read no more than `stretches` (the same on all ranks); without those, all of it.
  void prepare_part(const CommFingerprint& whole, ConstTensorView operand, PeerWork& work,
                    const std::optional<PeerStretches>& stretches = {});
  void issue() override;
  // Issues it as operation `number` in messages to users.
  void issue_as(std::uint64_t number);
  bool poll() override;
  bool has_peers() const override { return group_->size() > 1; }
  std::string describe() const override;

 private:
  enum class Phase : std::uint8_t { kPrepared, kIssued, kPosted, kStaged, kSharedOut, kMoved };

  bool is_inline() const { return in_.num_bytes() <= kInlineBytes; }
  bool needs_stages() const;     // an operand that is read lies out of peers' reach
  bool is_shared_out() const;
  bool is_inside_peers() const;  // whether peers use this rank's buffers until they have finished
  CollectiveSlot& slot() const { return group_->block.slot(sequence_); }
  CollectivePost& post_of(int rank) const { return group_->block.post(sequence_, rank); }
  std::uint64_t complete_at() const;  // value of the slot's counters when all ranks have been here
  bool slot_is_free() const;
  void post();
  bool everyone_arrived() const;
  void check_agreement_with(int rank) const;
  std::uint64_t pieces_of_a_stretch() const;
  std::uint64_t num_pieces() const { return pieces_of_a_stretch() * static_cast<std::uint64_t>(stretches_.count); }
  PeerOperands whole_operands() const;
  PeerOperands staged_piece() const;
  void fill_stage();
  bool advance_stages();
  void move(const PeerOperands& operands);
  void reduce_shares();
  void reduce_and_spread(const PeerOperands& operands, int share_number);
  void copy_slices(const PeerOperands& operands, std::int64_t source_offset);
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
  PeerStretches stretches_;
  std::uint64_t piece_ = 0;  // of staged operands: the one that is being filled and read
};

}  // namespace trident
