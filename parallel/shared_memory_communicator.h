// The communicator of ranks that can read each other's memory. Algorithms: shared_world.h, collective_operation.cpp.
//
// Operands up to kInlineBytes travel inside the control block with one synchronisation; larger ones are reduced and copied in place,
// directly between the ranks' buffers, with two. At most kSlots collectives of a communicator and kChannelSlots messages of an
// ordered pair are in flight, and 256 of either kind may be queued; later ones wait for them. Nothing allocates after construction.
//
// A rank that fails or leaves with operations pending makes every peer fail, and goes on only when no peer is inside its memory.
// Buffers given to queue streams must therefore outlive the communicator, or be awaited before they are freed.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/shared_operation.h"

namespace trident {

// Operations of one kind: room for `capacity` is reserved at once and touched only as far as so many are in flight.
template <class Operation>
class OperationPool {
 public:
  explicit OperationPool(std::size_t capacity) { operations_.reserve(capacity); }
  // An operation that is not busy; waits for one if all are. `make` constructs one.
  template <class Make> Operation& take(Progress& progress, Make make) {
    if (Operation* idle = find(false)) return *idle;
    if (operations_.size() < operations_.capacity()) return operations_.emplace_back(make());
    Operation* idle = nullptr;
    progress.wait_until([&] { return (idle = find(false)) != nullptr; }, [&] { return operations_.front().describe(); });
    return *idle;
  }
  // The first operation that is busy, or is not; null if there is none.
  Operation* find(bool busy) {
    for (Operation& operation : operations_)
      if (operation.busy() == busy) return &operation;
    return nullptr;
  }

 private:
  std::vector<Operation> operations_;  // never beyond its capacity: streams hold pointers into it
};

class SharedMemoryCommunicator final : public Communicator {
 public:
  // `block` is the control block of the group whose ranks are `world_ranks`; this rank is number `rank` of them. Streams passed to
  // operations are CpuStreams polled by `progress`.
  SharedMemoryCommunicator(SharedWorld& world, GroupBlock block, std::string name, int rank, std::vector<int> world_ranks,
                           Progress& progress);
  ~SharedMemoryCommunicator() override;

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }
  std::string_view name() const override { return group_.name; }
  void all_reduce(Stream& stream, TensorView inout, ReduceOp op) override;
  void reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) override;
  void all_gather(Stream& stream, TensorView out, ConstTensorView in) override;
  void broadcast(Stream& stream, TensorView inout, int root) override;
  void all_to_all(Stream& stream, TensorView out, ConstTensorView in) override;
  void send(Stream& stream, ConstTensorView data, int peer) override;
  void recv(Stream& stream, TensorView data, int peer) override;
  void group_begin() override;
  void group_end() override;
  void group_cancel() noexcept override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  void abort(std::string_view reason) override;
  void set_checks(CollectiveChecks checks) override { group_.checks = checks; }

 private:
  CollectiveOperation& take_collective();
  void collective(Stream& stream, CommOperation operation, ReduceOp reduce, TensorView out, ConstTensorView in, int root);
  MessageOperation& take_message(int peer);
  void submit(Stream& stream, SharedOperation& operation);
  // Host-synchronous collectives, for barrier() and split().
  void run_now(CommOperation operation, TensorView out, ConstTensorView in);
  std::vector<std::int64_t> gather_now(std::vector<std::int64_t> mine);
  std::string describe_pending();

  SharedGroup group_;
  Progress& progress_;
  std::uint64_t next_collective_ = 0;
  std::vector<std::uint64_t> next_send_, next_recv_;  // by peer
  OperationPool<CollectiveOperation> collectives_;
  OperationPool<MessageOperation> messages_;
  OperationPool<BatchOperation> batches_;
  int group_depth_ = 0;
  CpuStream* group_stream_ = nullptr;
  std::vector<SharedOperation*> deferred_;
};

// The communicator of all ranks of `world`, for one of them. Fruitless waits of that rank, which waits by `progress`, end when the
// world fails or its time-out has passed.
std::unique_ptr<Communicator> make_world_communicator(SharedWorld& world, int rank, Progress& progress);

}  // namespace trident
