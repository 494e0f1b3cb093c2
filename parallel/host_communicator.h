// What all communicators of host memory share: checks of arguments, group scopes, and host-synchronous calls. How data move is left
// to the operations that a derived class prepares.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/collective_call.h"
#include "parallel/communicator.h"
#include "parallel/communicator_operation.h"

namespace trident {

class HostCommunicator : public Communicator {
 public:
  std::string_view name() const final { return name_; }
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void all_reduce(Stream& stream, TensorView inout, ReduceOp op) final;
  void reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) final;
  void all_gather(Stream& stream, TensorView out, ConstTensorView in) final;
  void broadcast(Stream& stream, TensorView inout, int root) final;
  void all_to_all(Stream& stream, TensorView out, ConstTensorView in) final;
  void send(Stream& stream, ConstTensorView data, int peer) final;
  void recv(Stream& stream, TensorView data, int peer) final;
  void group_begin() final;
  void group_end() final;
  void group_cancel() noexcept final;
  void barrier() final;

  // What messages to users call rank `rank` of this group.
  virtual int world_rank_of(int rank) const = 0;

 protected:
  // Operations of each kind that a communicator keeps; issuing more waits for the oldest.
  static constexpr std::size_t kOperations = CpuStream::kCapacity;

  // Streams passed to operations are CpuStreams polled by `progress`.
  HostCommunicator(std::string name, int rank, int size, Progress& progress);

  // An idle operation, prepared and not yet issued.
  virtual CommunicatorOperation& prepare(const CollectiveCall& call) = 0;
  virtual CommunicatorOperation& prepare_send(ConstTensorView data, int peer) = 0;
  virtual CommunicatorOperation& prepare_recv(TensorView data, int peer) = 0;

  Progress& progress() const { return progress_; }
  // The largest of the ranks' values, at once; for split().
  std::int64_t largest_now(std::int64_t mine);
  // This rank's number among `members` of a new group.
  int number_among(std::span<const int> members) const;

 private:
  void collective(Stream& stream, const CollectiveCall& call);
  CallRules rules() const { return {rank_, size_}; }
  CpuStream& admit(Stream& stream) const;  // of an operation to be prepared
  void submit(CpuStream& stream, CommunicatorOperation& operation);
  void run_now(const CollectiveCall& call);

  std::string name_;
  int rank_, size_;
  Progress& progress_;
  OperationPool<BatchOperation> batches_;
  int group_depth_ = 0;
  CpuStream* group_stream_ = nullptr;
  std::vector<CommunicatorOperation*> deferred_;
};

}  // namespace trident
