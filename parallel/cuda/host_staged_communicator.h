// The communicator of device memory that goes through pinned memory and the host's communicator: ranks are processes or threads, on
// one GPU or several, with or without NCCL. Sums have the bits of the host's.
//
// Collectives of a communicator run one after another, cut into pieces of half the staging buffer (less for many ranks); messages
// have a buffer for every peer and direction, allocated when first used. Operations advance when the rank polls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/at.h"
#include "parallel/communicator/collective_call.h"
#include "parallel/cuda/cuda_handles.h"
#include "parallel/cuda/lane_operation.h"

namespace trident {

// How a call is cut into pieces that fit a staging buffer.
// Chunk c takes elements [c * step, min((c + 1) * step, slice)) of every one of the operand's `slices` slices of `slice` elements.
struct StagedCut {
  std::int64_t slices = 1, slice = 0, step = 0, chunks = 0;

  std::int64_t begin(std::int64_t chunk) const { return chunk * step; }
  std::int64_t count(std::int64_t chunk) const { return chunk + 1 < chunks ? step : slice - begin(chunk); }
};

// For a slot of `slot_bytes` bytes, which holds all slices of a chunk, of an all_to_all both those that leave and those that come.
// InternalError if not even one element of each fits.
StagedCut cut_for_staging(const CollectiveCall& call, int ranks, std::int64_t slot_bytes);

// A rank's two directions between host and GPU, for all operations of a communicator.
struct StagedCopies {
  explicit StagedCopies(int number) : device(number), in(number), out(number) {}
  int device;
  CudaQueue in, out;  // to the host, to the device
};

// An operation through pinned host memory: device to host, the host communicator's operation, host to device, chunk by chunk. While
// the hosts exchange one chunk the next one leaves the device and the one before returns.
class StagedOperation final : public LaneOperation {
 public:
  StagedOperation(LaneGroup& group, StagedCopies& copies)
      : LaneOperation(group, Records::kWhereCompared), copies_(&copies), slots_{Slot(copies.device), Slot(copies.device)} {}

 private:
  // Half of the lane's data. Chunk c uses slot c % 2.
  struct Slot {
    explicit Slot(int device) : copied(device) {}
    CudaEvent copied;  // into it, or out of it
    Event exchanged;
  };

  void start() override;
  bool advance() override;
  std::string describe_move() const override;

  void copy_in(std::int64_t chunk);
  void exchange(std::int64_t chunk);
  void copy_out(std::int64_t chunk);
  Slot& slot(std::int64_t chunk) { return at(slots_, chunk % 2); }
  std::int64_t slot_bytes() const { return lane().data_bytes() / 2; }
  // `count` elements at `first` of chunk's slot, as host memory.
  TensorView staged(std::int64_t chunk, std::int64_t first, std::int64_t count) const;
  void copy(cudaStream_t stream, void* to, const void* from, std::int64_t elements) const;

  StagedCopies* copies_;
  std::array<Slot, 2> slots_;
  StagedCut cut_;
  // Chunks whose copy in began, whose exchange began, whose copy out began, that are done.
  std::int64_t in_ = 0, exchanging_ = 0, out_ = 0, done_ = 0;
};

struct HostStagedOptions {
  std::int64_t collective_bytes = std::int64_t{16} << 20;  // of a communicator
  std::int64_t message_bytes = std::int64_t{4} << 20;      // of one direction to or from one peer
};

class HostStagedCommunicator final : public LaneCommunicator<StagedOperation> {
 public:
  // place.staging: memory that the host's communicator takes operands from; it is page-locked here if it is not yet.
  HostStagedCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place, const HostStagedOptions& options = {});
  ~HostStagedCommunicator() override { leave(); }

 private:
  StagedOperation make_operation() override { return StagedOperation(group(), copies_); }
  std::unique_ptr<Lane> make_lane(const CollectiveCall& call, const std::string& name) override;
  std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> host) override {
    return std::make_unique<HostStagedCommunicator>(std::move(host), place(), options_);
  }
  Buffer allocate(std::int64_t bytes, const std::string& name) const;

  HostStagedOptions options_;
  StagedCopies copies_;
};

}  // namespace trident
