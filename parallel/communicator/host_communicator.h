// The base of all communicators of host memory: group scopes and host-synchronous calls. Data are moved by the operations
// that a derived class prepares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/communicator/collective_call.h"
#include "parallel/communicator/communicator.h"
#include "parallel/communicator/pending_collective.h"

namespace trident {

class HostCommunicator : public Communicator {
 protected:
  // Operations of each kind that a communicator keeps; issuing more waits for the oldest.
  static constexpr std::size_t kOperations = CpuStream::kCapacity;

  // Streams passed to operations are CpuStreams polled by `progress`.
  HostCommunicator(std::string name, int rank, int size, Progress& progress);

  // An idle operation, prepared and not yet issued.
  virtual CommunicatorOperation& prepare(const CollectiveCall& call) = 0;

  Progress& progress() const { return progress_; }
  // At once, for make_part(): a barrier, and the largest of the ranks' values.
  void meet() final { run_now({}); }
  std::int64_t largest_now(std::int64_t mine);

 private:
  void enqueue(Stream& stream, const CollectiveCall& call) final;
  void flush() final;
  void drop() noexcept final;
  CpuStream& admit(Stream& stream) const;  // of an operation to be prepared
  void submit(CpuStream& stream, CommunicatorOperation& operation);
  void run_now(const CollectiveCall& call);

  Progress& progress_;
  OperationPool<BatchOperation> batches_;
  CpuStream* group_stream_ = nullptr;
  std::vector<CommunicatorOperation*> deferred_;
};

}  // namespace trident
