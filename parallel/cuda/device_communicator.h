// The base of all communicators of device memory. Each is made from a communicator of host memory over the same ranks: through that
// the ranks of a group find each other, agree and give up; how data move is left to the derived class.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/at.h"
#include "device/buffer.h"
#include "device/cuda/cuda_stream.h"
#include "device/host/cpu_stream.h"
#include "parallel/communicator/collective_call.h"
#include "parallel/communicator/communicator.h"

namespace trident {

// A rank's GPU, and how the rank waits.
struct DevicePlace {
  int device = 0;
  Progress* progress = nullptr;
  HostAllocator staging;  // host memory that peers reach; not set: memory of this process
};

class DeviceCommunicator : public Communicator {
 public:
  int global_rank_of(int rank) const final { return at(global_ranks_, rank); }
  void abort(std::string_view reason) override { host_->abort(reason); }

 protected:
  // Calls of a group scope; more are an InternalError.
  static constexpr std::size_t kCalls = CpuStream::kCapacity - 1;

  // Who carries out the calls of a group of one rank.
  enum class Alone : std::uint8_t { kCopies, kRuns };

  // `host`: a communicator of host memory whose streams `place.progress` polls, and which nobody else uses.
  DeviceCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place, Alone alone = Alone::kCopies);

  // Enqueues calls that were made together: one, or those of a group scope.
  virtual void run(CudaStream& stream, std::span<const CollectiveCall> calls) = 0;
  // The host waits until every rank is here and has issued all it issued before.
  void meet() override = 0;
  // A communicator of the same kind over a part of the ranks.
  virtual std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> host) = 0;

  Communicator& host() const { return *host_; }
  const DevicePlace& place() const { return place_; }
  Progress& progress() const { return *place_.progress; }
  // Global ranks of the group, by rank: what messages to users name.
  const std::vector<int>& global_ranks() const { return global_ranks_; }
  // run() is never called: nobody else is here, and copies do.
  bool copies_alone() const { return size() == 1 && alone_ == Alone::kCopies; }
  // An all_gather of host memory, at once.
  std::vector<std::int64_t> gather_now(std::vector<std::int64_t> mine);
  // The world fails: CommunicationError on all its ranks.
  [[noreturn]] void fail(const std::string& reason);
  // Ends the host's communicator, which after a failure waits until no peer is inside this rank's memory. For destructors.
  void release_host() { host_.reset(); }

 private:
  void enqueue(Stream& stream, const CollectiveCall& call) final;
  void flush() final;
  void drop() noexcept final;
  std::unique_ptr<Communicator> make_part(std::span<const int> members, int number, std::string name) final;
  void use_checks(CollectiveChecks checks) final { host_->set_checks(checks); }
  void copy_alone(CudaStream& stream, const CollectiveCall& call) const;

  std::unique_ptr<Communicator> host_;
  DevicePlace place_;
  Alone alone_;
  std::vector<int> global_ranks_;
  CudaStream* group_stream_ = nullptr;
  std::vector<CollectiveCall> deferred_;
};

}  // namespace trident
