// The machine's best rates, measured between the passes of a generation.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/device.h"
#include "infer/generate/generate_times.h"
#include "model/config/model_config.h"

namespace trident {

// The FLOPs of a model's prompts, and no pass yet.
GenerateTimes times_of_no_pass(const ModelConfig& model);

class MachineRates {
 public:
  // Allocates kBytes. `device`: a CPU's; outlives the object.
  MachineRates(Device& device, DType compute);

  struct Rate {
    double by_clock = 0, by_cpu = 0;  // by seconds that pass, and by those that this thread computes
  };
  // bytes/s of all threads of the rank, of memory that no cache holds.
  Rate read();
  // FLOP/s of large products in the compute dtype, as mfu is a share of.
  Rate multiply();

 private:
  static constexpr std::int64_t kBytes = std::int64_t{256} << 20;

  Device& device_;
  DType compute_;
  Buffer memory_;
  std::uint64_t sum_ = 0;
};

}  // namespace trident
