// A call of a communicator as a value, and what is illegal about its arguments on every transport.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor_view.h"
#include "parallel/communicator/collective_kind.h"

namespace trident {

// A call of a collective; `in` is for in-place operations the same memory as `out`.
struct CollectiveCall {
  CommOperation operation = CommOperation::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  TensorView out{nullptr, DType::kU8, {0}};
  ConstTensorView in{nullptr, DType::kU8, {0}};
  int root = -1;  // within the group; of a message: the peer

  bool is_message() const { return operation == CommOperation::kSend || operation == CommOperation::kRecv; }
};

// Bytes that each of the `size` ranks of a group sends, whatever the transport, times `size`: a whole number (CommCounters).
std::int64_t bytes_sent_times_n(const CollectiveCall& call, int size);

// `global_ranks`: of the group, by rank.
CommFingerprint fingerprint_of(const CollectiveCall& call, std::span<const int> global_ranks);

// Calls of rank `rank` in a group of `size` ranks whose operands lie in memory of one of the two sides. Arguments that break the
// contract of communicator.h are an InternalError.
struct CallRules {
  int rank = 0, size = 1;
  enum class Side : std::uint8_t { kHost, kDevice, kEither } side = Side::kHost;  // pinned memory counts as the host's

  CollectiveCall all_reduce(TensorView inout, ReduceOp op) const;
  CollectiveCall reduce_scatter(TensorView out, ConstTensorView in, ReduceOp op) const;
  CollectiveCall all_gather(TensorView out, ConstTensorView in) const;
  CollectiveCall broadcast(TensorView inout, int root) const;
  CollectiveCall all_to_all(TensorView out, ConstTensorView in) const;
  CollectiveCall send(ConstTensorView data, int peer) const;  // data: `in`
  CollectiveCall recv(TensorView data, int peer) const;       // data: `out` and `in`

 private:
  void check_dense(ConstTensorView view) const;
  void check_slices(ConstTensorView whole, ConstTensorView part) const;
  void check_overlap(ConstTensorView whole, ConstTensorView part) const;
  void check_peer(int peer) const;
};

}  // namespace trident
