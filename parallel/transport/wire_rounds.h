// Collectives in which a rank talks to one peer at a time: a logarithmic number of messages for a barrier and for small reductions.
//
//   meet     dissemination (Hensgen, Finkel, Manber 1988): in round k a word goes 2^k ranks up; after ceil(log2 n) rounds everybody
//            has heard of everybody
//   combine  recursive doubling, neighbours first where n is no power of two (Thakur, Rabenseifner, Gropp 2005, 4.4): for
//            reductions that may be bracketed anyhow as long as ranks keep their order, integer sums and maxima
//   gather   Bruck's all-gather: everybody has everybody's operand after ceil(log2 n) rounds and adds them in rank order: the bits
//            of any other way
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor_view.h"
#include "parallel/transport/wire_group.h"

namespace trident {

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

}  // namespace trident
