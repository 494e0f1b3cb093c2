// Collective operations within a group of ranks: the complete, stream-ordered interface every transport implements.
//
// - A call enqueues on `stream` and returns (on a CPU's compute stream: when it is complete). Buffers must stay untouched until the
//   stream has passed the operation. Order between streams is by events.
// - All ranks of the group issue the same operations on one communicator in the same order (send/recv: matching pairs in order
//   per peer and direction).
// - Sums are taken in rank order 0, 1, .. n-1 in f32 (f64 for f64, integers exactly) and rounded once: the same bits on every
//   rank, every time.
// - Operands may lie anywhere in the rank's memory of the communicator's kind. What peers do not reach is copied on its way; what
//   Device::allocate() and allocate_host_shared() gave is not.
// - Views are dense; dtypes f32, bf16, f16, f64, i64, i32, u8 (u8: data movement only); counts are int64 and may exceed 2^31
//   elements.
// - A group of one rank is a correct no-op or copy. Zero-sized views are legal.
// - A failed, late or disagreeing peer is a CommunicationError that names axis, operation and ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_view.h"
#include "device/stream.h"
#include "parallel/comm_operation.h"

namespace trident {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // the axis: "tp", "dp", ..., for messages, counters and traces

  // In place; every rank ends with the reduction of all.
  virtual void all_reduce(Stream& stream, TensorView inout, ReduceOp op) = 0;
  // in: size()*count elements; out: count elements, the reduction of slice rank(). out may be exactly in's slice rank()
  // (in is const for peers' slices but its own slice is then overwritten); any other overlap is illegal.
  virtual void reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) = 0;
  // out: size()*count elements, slice r from rank r; in: count elements, may be exactly out's slice rank().
  virtual void all_gather(Stream& stream, TensorView out, ConstTensorView in) = 0;
  virtual void broadcast(Stream& stream, TensorView inout, int root) = 0;
  // in, out: size()*count elements; slice r of out is slice rank() of rank r's in. No overlap.
  virtual void all_to_all(Stream& stream, TensorView out, ConstTensorView in) = 0;
  // Point to point, in order per (sender, receiver). Counts and dtypes of a pair must agree. peer != rank().
  virtual void send(Stream& stream, ConstTensorView data, int peer) = 0;
  virtual void recv(Stream& stream, TensorView data, int peer) = 0;
  // Between begin and end, operations may be deferred and run as one; sends and receives within a group never wait for each other.
  // All operations of a group use one stream. group_cancel() instead of group_end() drops what was not yet issued. Use GroupScope.
  virtual void group_begin() = 0;
  virtual void group_end() = 0;
  virtual void group_cancel() noexcept = 0;
  // The host waits until every rank of the group is here.
  virtual void barrier() = 0;
  // A new group of `members`: ranks of this group, rank() among them, in the order of their new numbers. Collective over this
  // group, each of whose ranks passes the members of the group that it will be in. Nobody compares the lists. Host-synchronous.
  virtual std::unique_ptr<Communicator> split(std::span<const int> members, std::string name) = 0;
  // Makes every rank's pending and later operations (in all groups of this world) throw CommunicationError with `reason`.
  virtual void abort(std::string_view reason) = 0;
  // Whether ranks compare what they called (operation, dtype, count, root) before an operation runs; on unless switched off by all
  // ranks. Sends and receives are always compared.
  virtual void set_checks(CollectiveChecks checks) = 0;
  // From here on all operands lie in `memory`, at the same offsets on every rank; it outlives the communicator. Collective over the group. A
  // transport that moves registered memory without copies makes use of it. If a rank cannot, none does, and the first of those is told why in one
  // line; empty otherwise.
  virtual std::string register_memory(TensorView /*memory*/) { return {}; }
};

// 0, 1, .. size() - 1, for a split into one group.
inline std::vector<int> all_ranks(const Communicator& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class GroupScope {
 public:
  explicit GroupScope(Communicator& communicator) : communicator_(communicator) { communicator_.group_begin(); }
  ~GroupScope() noexcept(false) {
    if (std::uncaught_exceptions() > exceptions_) communicator_.group_cancel();
    else communicator_.group_end();
  }
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;

 private:
  Communicator& communicator_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace trident
