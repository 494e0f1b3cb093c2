// What all communicators of device memory share. Each is made from a communicator of host memory over the same ranks: through that
// the ranks of a group find each other, agree and give up; how data move is left to the derived class.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/buffer.h"
#include "device/cpu/cpu_stream.h"
#include "device/cuda/cuda_stream.h"
#include "parallel/collective_call.h"
#include "parallel/communicator.h"

namespace trident {

// A rank's card, and how the rank waits.
struct DevicePlace {
  int device = 0;
  Progress* progress = nullptr;
  HostAllocator staging;  // host memory that peers reach; not set: memory of this process
};

class DeviceCommunicator : public Communicator {
 public:
  std::string_view name() const final { return name_; }
  int rank() const final { return rank_; }
  int size() const final { return static_cast<int>(names_.size()); }
  void all_reduce(Stream& stream, TensorView inout, ReduceOp op) final { call(stream, rules().all_reduce(inout, op)); }
  void reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) final {
    call(stream, rules().reduce_scatter(out, in, op));
  }
  void all_gather(Stream& stream, TensorView out, ConstTensorView in) final { call(stream, rules().all_gather(out, in)); }
  void broadcast(Stream& stream, TensorView inout, int root) final { call(stream, rules().broadcast(inout, root)); }
  void all_to_all(Stream& stream, TensorView out, ConstTensorView in) final { call(stream, rules().all_to_all(out, in)); }
  void send(Stream& stream, ConstTensorView data, int peer) final { call(stream, rules().send(data, peer)); }
  void recv(Stream& stream, TensorView data, int peer) final { call(stream, rules().recv(data, peer)); }
  void group_begin() final { ++group_depth_; }
  void group_end() final;
  void group_cancel() noexcept final;
  void barrier() final;
  std::unique_ptr<Communicator> split(std::span<const int> members, std::string name) final;
  void abort(std::string_view reason) override { host_->abort(reason); }
  void set_checks(CollectiveChecks checks) final;

 protected:
  // Calls of a group scope; more are an InternalError.
  static constexpr std::size_t kCalls = CpuStream::kCapacity - 1;

  // Who carries out the calls of a group of one rank.
  enum class Alone : std::uint8_t { kCopies, kRuns };

  // `host`: a HostCommunicator whose streams `place.progress` polls, and which nobody else uses.
  DeviceCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place, Alone alone = Alone::kCopies);

  // Enqueues calls that were made together: one, or those of a group scope.
  virtual void run(CudaStream& stream, std::span<const CollectiveCall> calls) = 0;
  // The host waits until every rank is here and has issued all it issued before.
  virtual void meet() = 0;
  // A communicator of the same kind over a part of the ranks.
  virtual std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> host) = 0;

  Communicator& host() const { return *host_; }
  const DevicePlace& place() const { return place_; }
  Progress& progress() const { return *place_.progress; }
  // World ranks of the group, by rank: what messages to users name.
  const std::vector<int>& names() const { return names_; }
  // run() is never called: nobody else is here, and copies do.
  bool copies_alone() const { return size() == 1 && alone_ == Alone::kCopies; }
  CollectiveChecks checks() const { return checks_; }
  // An all_gather of host memory, at once.
  std::vector<std::int64_t> gather_now(std::vector<std::int64_t> mine);
  // The world fails: CommunicationError on all its ranks.
  [[noreturn]] void fail(const std::string& reason);
  // Ends the host's communicator, which after a failure waits until no peer is inside this rank's memory. For destructors.
  void release_host() { host_.reset(); }

 private:
  CallRules rules() const { return {rank_, size(), CallRules::Side::kDevice}; }
  void call(Stream& stream, const CollectiveCall& call);
  void copy_alone(CudaStream& stream, const CollectiveCall& call) const;

  std::unique_ptr<Communicator> host_;
  DevicePlace place_;
  std::string name_;
  int rank_;
  Alone alone_;
  std::vector<int> names_;
  CollectiveChecks checks_ = CollectiveChecks::kOn;
  int group_depth_ = 0;
  CudaStream* group_stream_ = nullptr;
  std::vector<CollectiveCall> deferred_;
};

}  // namespace trident
