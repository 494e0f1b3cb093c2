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
// - A failed, late or disagreeing peer is a CommunicationError that names axis, operation and ranks; arguments that break this
//   contract are an InternalError.
//
// This class does what all transports share: a call is checked, counted, noted, told to the status board, and becomes a value
// (collective_call.h). A transport carries out such values.
#pragma once

#include <array>
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
#include "parallel/communicator/collective_call.h"

namespace trident {

class StatusBoard;

// Bytes sent by this rank, whatever the transport (docs/design/communication.md): all_reduce 2(n-1)/n x bytes, reduce_scatter and
// all_gather (n-1)/n x (whole) bytes, broadcast (n-1)/n x bytes, all_to_all (n-1)/n x bytes, send bytes, recv 0. These are
// rationals with denominator n = group_size: the integers bytes_times_n may be summed over ranks and then divided without any
// rounding.
struct CommCounters {
  int group_size = 1;
  std::array<std::int64_t, kNumCommOperations> calls{};
  std::array<std::int64_t, kNumCommOperations> bytes_times_n{};
  std::int64_t groups = 0;  // group scopes that had operations in them
  double total_bytes() const;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }  // within the group
  int size() const { return size_; }
  std::string_view name() const { return name_; }  // the axis: "tp", "dp", ..., for messages, counters and traces
  // The global number of rank `rank` of this group, which messages to users name.
  virtual int global_rank_of(int rank) const = 0;

  // In place; every rank ends with the reduction of all.
  void all_reduce(Stream& stream, TensorView inout, ReduceOp op);
  // in: size()*count elements; out: count elements, the reduction of slice rank(). out may be exactly in's slice rank()
  // (in is const for peers' slices but its own slice is then overwritten); any other overlap is illegal.
  void reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op);
  // out: size()*count elements, slice r from rank r; in: count elements, may be exactly out's slice rank().
  void all_gather(Stream& stream, TensorView out, ConstTensorView in);
  void broadcast(Stream& stream, TensorView inout, int root);
  // in, out: size()*count elements; slice r of out is slice rank() of rank r's in. No overlap.
  void all_to_all(Stream& stream, TensorView out, ConstTensorView in);
  // Point to point, in order per (sender, receiver). Counts and dtypes of a pair must agree. peer != rank().
  void send(Stream& stream, ConstTensorView data, int peer);
  void recv(Stream& stream, TensorView data, int peer);
  // Between begin and end, operations may be deferred and run as one; sends and receives within a group never wait for each other.
  // All operations of a group use one stream. group_cancel() instead of group_end() drops what was not yet issued. Use GroupScope.
  void group_begin() { ++group_depth_; }
  void group_end();
  void group_cancel() noexcept;
  // The host waits until every rank of the group is here.
  void barrier();
  // A new group of `members`: ranks of this group, rank() among them, in the order of their new numbers; its checks and its board
  // are this one's, its counters its own. Collective over this group, each of whose ranks passes the members of the group that it
  // will be in. Nobody compares the lists. Host-synchronous.
  std::unique_ptr<Communicator> split(std::span<const int> members, std::string name);
  // Makes every rank's pending and later operations (in all groups of this world) throw CommunicationError with `reason`.
  virtual void abort(std::string_view reason) = 0;
  // Whether ranks compare what they called (sequence number, operation, dtype, count, root) before an operation runs; on unless
  // switched off by all ranks. A mismatch is a CommunicationError that names both ranks and both operations, instead of a hang or
  // silent corruption. Groups over many nodes do not (kMostGreeted): history() is compared once per step. Sends and receives are
  // always compared.
  void set_checks(CollectiveChecks checks);
  // From here on all operands lie in `memory`, at the same offsets on every rank; it outlives the communicator. Collective over
  // the group. A transport that moves registered memory without copies makes use of it. If a rank cannot, none does, and the first
  // of those is told why in one line; empty otherwise.
  virtual std::string register_memory(TensorView /*memory*/) { return {}; }

  const CommCounters& counters() const { return counters_; }
  void reset_counters();
  // A hash of the collective operations called so far: equal on all ranks of a group that called the same in the same order.
  std::uint32_t history() const { return history_; }
  // `board` is told of every operation that this rank enters, here and in groups split off from now on; it outlives them.
  void report_to(StatusBoard* board) { board_ = board; }

 protected:
  // Operands lie in memory of `side`.
  Communicator(std::string name, int rank, int size, CallRules::Side side);

  bool in_group() const { return group_depth_ > 0; }
  CollectiveChecks checks() const { return checks_; }

 private:
  // Enqueues what was called: it keeps the rules. Within a group it may wait for flush().
  virtual void enqueue(Stream& stream, const CollectiveCall& call) = 0;
  virtual void flush() = 0;          // the outermost group scope ends
  virtual void drop() noexcept = 0;  // or is given up
  virtual void meet() = 0;           // barrier(), outside group scopes
  // split(): this rank is number `number` of `members`. Outside group scopes.
  virtual std::unique_ptr<Communicator> make_part(std::span<const int> members, int number, std::string name) = 0;
  virtual void use_checks(CollectiveChecks /*checks*/) {}

  CallRules rules() const { return {rank_, size_, side_}; }
  void call(Stream& stream, const CollectiveCall& call);
  void note(const CollectiveCall& call);
  void count(CommOperation operation, std::int64_t bytes_times_n);

  std::string name_;
  int rank_, size_;
  CallRules::Side side_;
  int group_depth_ = 0;
  bool called_in_group_ = false;
  CollectiveChecks checks_ = CollectiveChecks::kOn;
  StatusBoard* board_ = nullptr;
  CommCounters counters_;
  std::uint32_t history_ = 2166136261u;
  std::array<std::uint64_t, kNumCommOperations> entered_{};  // since construction
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
