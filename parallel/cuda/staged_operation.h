// An operation through pinned host memory: device to host, the host communicator's operation, host to device, chunk by chunk. While
// the hosts exchange one chunk the next one leaves the device and the one before returns.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/at.h"
#include "parallel/cuda/cuda_handles.h"
#include "parallel/cuda/lane_operation.h"
#include "parallel/cuda/staged_cut.h"

namespace trident {

// A rank's two directions between host and GPU, for all operations of a communicator.
struct StagedCopies {
  explicit StagedCopies(int number) : device(number), in(number), out(number) {}
  int device;
  CudaQueue in, out;  // to the host, to the device
};

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

}  // namespace trident
