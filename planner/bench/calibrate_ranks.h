// How calibration measures: ranks at work on all cores, and the least seconds of a call.
#pragma once

#include <cstdint>
#include <functional>

#include "device/cpu/cpu_device.h"
#include "parallel/communicator/communicator.h"

namespace trident {

// One measuring rank; `all` joins those at work beside it.
struct MeasuringRank {
  int rank = 0;
  CpuDevice& device;
  Communicator& all;
  double (*clock)();  // CPU seconds of this thread, or the clock's where it has helpers
};

// On `ranks` threads, each with `threads` of its own, on cores of their own where there are as many: as training has it.
void on_measuring_ranks(int ranks, int threads, const std::function<void(const MeasuringRank& rank)>& body);

// Least seconds of one `call`, after one that is not counted, within about `budget` seconds: of batches long enough for the clock.
// A call that takes many budgets is made once.
double least_seconds(double (*clock)(), double budget, const std::function<void()>& call);

// Operands one after the other, round and round in `window` bytes or, where one call's take more, in as many as they take; values
// are from -1 to 1. Not for concurrent use.
class OperandPool {
 public:
  OperandPool(Device& device, std::int64_t window, DType dtype);
  // The operands of a call come from one pass through the pool: next_call(), then next() for each. Views live until the next
  // call's.
  TensorView next(Shape shape);
  void next_call(std::int64_t bytes);

 private:
  void fill(std::int64_t bytes);

  Device& device_;
  std::int64_t window_;
  DType dtype_;
  Buffer memory_;
  std::int64_t at_ = 0;
};

}  // namespace trident
