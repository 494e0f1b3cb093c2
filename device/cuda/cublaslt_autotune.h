// Which of the library's proposals for a product is fastest, by timing them on the device.
//
// The library's own estimate is wrong for some shapes. Two algorithms round differently: runs that must repeat each other's bits
// use the same file of choices (cublaslt_choices.h), or do without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/cuda/cublaslt_plan.h"
#include "device/ops.h"

namespace trident {

struct AutotuneOptions {
  std::string file;         // where choices are kept; made if it is not there
  std::string device_name;  // as in cudaDeviceProp: choices hold for this model
  int candidates = 16;      // proposals to time
  int repetitions = 10;     // of each, after one that is not counted
};

struct FastestProposal {
  std::size_t index = 0;
  double seconds = 0;
};
// The proposal i with the smallest time(i), the earlier of equals. Those whose timing throws (the library refused after all) or is
// no finite number are passed over; nothing if all are.
std::optional<FastestProposal> fastest(std::size_t proposals, const std::function<double(std::size_t)>& time);

// Runs a product on device memory of its own, filled with random numbers (zeros would need less power and flatter the clock).
// Inputs change from call to call, so that they come from memory and not from a cache.
class MatmulTimer {
 public:
  // `plan` is for `shape` and outlives the object. ConfigError if the memory is not to be had.
  MatmulTimer(int device, CublasLtPlan& plan, const MatmulShape& shape, Epilogue epilogue, std::int64_t workspace_bytes);
  ~MatmulTimer();
  MatmulTimer(const MatmulTimer&) = delete;
  MatmulTimer& operator=(const MatmulTimer&) = delete;

  // Seconds per product, the mean of `repetitions`.
  double seconds(const Algorithm& algorithm, int repetitions);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace trident
