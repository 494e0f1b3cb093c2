// A rank with two CUDA streams, and operations of the host for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/check.h"
#include "device/cuda/cuda_stream.h"
#include "device/host/doorbell.h"
#include "tests/cuda/simulated_scope.h"

namespace trident::testing {

using simulated::StreamOrder;
using Mode = CudaStream::Mode;

inline constexpr StreamOrder kStreamOrders[] = {StreamOrder::kRandom, StreamOrder::kTargetFirst, StreamOrder::kOthersFirst,
                                                StreamOrder::kEager};

inline simulated::Settings with(StreamOrder order, std::uint64_t seed = 1) {
  simulated::Settings settings;
  settings.stream_order = order;
  settings.seed = seed;
  return settings;
}

// A rank with two streams and what happened in which order.
struct Rank {
  explicit Rank(Mode mode = Mode::kQueue) : a(0, "a", mode, progress, 0), b(0, "b", mode, progress, -1) {}
  Doorbell doorbell;
  Progress progress{doorbell};
  CudaStream a, b;
  std::vector<int> happened;

  // Device work that notes its number.
  void work(CudaStream& stream, int number) {
    simulated::enqueue(stream.handle(), "work", [this, number] { happened.push_back(number); });
  }
};

// An operation of the host that notes its number once `open`.
class Step final : public PendingOperation {
 public:
  Step(std::vector<int>& happened, int number, bool is_open = true) : open(is_open), happened_(happened), number_(number) {}
  bool poll() override {
    if (open) happened_.push_back(number_);
    return open;
  }
  std::string describe() const override { return "step " + std::to_string(number_); }
  bool open;

 private:
  std::vector<int>& happened_;
  int number_;
};

class Failure final : public PendingOperation {
 public:
  bool poll() override { throw CommunicationError("the peer is gone"); }
  std::string describe() const override { return "failure"; }
};

}  // namespace trident::testing
