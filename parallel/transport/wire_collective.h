// The collectives of ranks that exchange messages, a state machine that a stream polls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/tensor_view.h"
#include "parallel/communicator/host_communicator.h"
#include "parallel/communicator/rank_order_sum.h"
#include "parallel/transport/wire_group.h"

namespace trident {

// Collectives in which a rank talks to one peer at a time: a logarithmic number of messages for a barrier and for small reductions.
//
//   meet     dissemination (Hensgen, Finkel, Manber 1988): in round k a word goes 2^k ranks up; after ceil(log2 n) rounds everybody
//            has heard of everybody
//   combine  recursive doubling, neighbours first where n is no power of two (Thakur, Rabenseifner, Gropp 2005, 4.4): for
//            reductions that may be bracketed anyhow as long as ranks keep their order, integer sums and maxima
//   gather   Bruck's all-gather: everybody has everybody's operand after ceil(log2 n) rounds and adds them in rank order: the bits
//            of any other way
class WireRounds {
 public:
  enum class Kind : std::uint8_t { kMeet, kCombine, kGather };
  // How a reduction goes.
  static Kind kind_of(DType dtype, ReduceOp op);

  // `inout`: the rank's operand, and once complete the reduction of all; empty for kMeet. The group's staging has room for one of
  // every peer.
  void begin(WireGroup& group, Kind kind, TensorView inout, ReduceOp op);
  // Advances without blocking; true once complete. Receives from a peer once its header has come (WireGroup::peers).
  bool advance();
  // The peer whose message is awaited, or that has not taken ours: a rank of the group.
  int awaited() const { return has_received() ? to_ : from_; }
  bool has_received() const { return from_ < 0 || in_.complete(); }

 private:
  void begin_round();
  void begin_meeting();
  void begin_combining();
  void begin_gathering();
  void exchange(int to, std::byte* out, std::int64_t out_bytes, int from, std::byte* in, std::int64_t in_bytes);
  void end_round();
  void combine(const std::byte* lower, const std::byte* upper);
  void add_gathered();
  bool is_folded() const;  // this rank's operand is its upper neighbour's concern
  int rank_in_doubling(int rank) const;
  int rank_of_doubling(int doubling_rank) const;

  WireGroup* group_ = nullptr;
  Kind kind_ = Kind::kMeet;
  TensorView inout_;
  ReduceOp op_ = ReduceOp::kSum;
  int round_ = 0, rounds_ = 0;
  int to_ = -1, from_ = -1;  // of this round
  Transfer out_, in_;
};

// all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier.
//
// reduce_scatter: every rank receives its slice from all others, piece by piece, and adds the pieces in rank order. all_reduce: the
// same, then everybody sends its slice to everybody; small operands in WireRounds. all_gather, all_to_all: slices go
// straight to their places. broadcast: a binomial tree, piece by piece. barrier: in rounds.
class WireCollective final : public CommunicatorOperation {
 public:
  explicit WireCollective(WireGroup& group) : group_(&group) {}

  void prepare(const CollectiveCall& call);
  // A part of a larger operation, which `whole` describes to peers. Slices of `slice` elements: that of rank r is number
  // positions[r] of the larger operand (of reduce_scatter: `in`, all_gather: `out`, all_to_all: both), or there is none where
  // positions[r] is negative. A rank without a slice receives or sends none. `positions` outlives the operation; null: slice r is
  // number r.
  void prepare_part(const CollectiveCall& call, const CommFingerprint& whole, std::int64_t slice, const int* positions);
  void issue() override;
  // Issues it as operation `number` in messages to users.
  void issue_as(std::uint64_t number);
  bool poll() override;
  bool has_peers() const override { return group_->size() > 1; }
  std::string describe() const override;

 private:
  enum class Phase : std::uint8_t { kPrepared, kIssued, kMoving };
  enum class Step : std::uint8_t { kSum, kSpread, kExchange, kTree, kRounds, kNone };

  bool is_greeting() const { return group_->checks == CollectiveChecks::kOn && group_->size() <= kMostGreeted; }
  bool is_greeted(const WireGroup::Peer& peer) const { return peer.header_sent && peer.header_received; }
  bool is_greeted_by_all() const;
  IndexRange slice(int rank) const;
  std::int64_t slice_bytes(int rank) const { return slice(rank).size() * size_of(in_.dtype()); }
  std::byte* slice_of_out(int rank) const { return out_.data() + slice(rank).begin * size_of(in_.dtype()); }
  std::byte* slice_of_in(int rank) const;
  Step first_step() const;
  void begin();
  void begin_step(Step step);
  void begin_rounds();
  void begin_with(int peer);
  int parent() const;
  bool is_child(int peer) const;
  bool advance();
  void advance_with(int peer);
  void greet(int peer);
  void check_agreement_with(int peer) const;
  void add_pieces();
  bool add_piece();
  bool step_is_complete() const;
  void move_alone() const;
  bool end();

  WireGroup* group_;
  Phase phase_ = Phase::kPrepared;
  Step step_ = Step::kNone;
  std::uint64_t sequence_ = 0;
  IssuedCall header_;  // what this rank tells its peers
  CommFingerprint fingerprint_;
  TensorView out_;
  ConstTensorView in_;
  int root_ = -1;
  std::int64_t slice_ = 0;
  const int* positions_ = nullptr;
  std::int64_t pieces_added_ = 0;
  WireRounds rounds_;
  bool rounds_done_ = false;
};

}  // namespace trident
