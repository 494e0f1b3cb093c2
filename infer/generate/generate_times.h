// Times of prompts and steps of a generation, beside what this machine could do at the same moments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/json_reader.h"
#include "device/device.h"
#include "model/config/model_config.h"

namespace trident {

// A prompt that was read, up to its first new token, or one step of all slots.
struct PassTime {
  bool is_prompt = false;
  double seconds = 0, cpu_seconds = 0;  // passed, and of this thread
  std::int64_t tokens = 0;     // of the prompt, or new ones
  std::int64_t positions = 0;  // cached ones that a step looked at, a layer on average, summed over slots in use; of a prompt 0
  // Measured right after it: FLOP/s of products (prompt) or bytes/s read (step), by either clock; 0: was not.
  double machine_rate = 0, machine_cpu_rate = 0;
};

struct GenerateTimes {
  std::vector<PassTime> passes;
  // That a step reads, on the rank: all weights but what is looked up, and of each position that it looks at.
  std::int64_t step_weight_bytes = 0, cache_bytes_per_position = 0;
  // FLOPs of the whole model, a multiply-add counted as two: of a prompt's token, of its last one beside, of a query with a key
  // that it sees.
  double flops_per_token = 0, flops_per_prompt = 0, flops_per_pair = 0;
};

// Medians over passes of one kind. Each share is of a pass and the rate measured right after it. On a machine that others use too,
// what passes by the clock says little; seconds that the rank's thread computed are what an idle machine would take, as long as the
// rank's other threads get as much.
struct PassSummary {
  std::int64_t passes = 0;
  double tokens = 0;             // of one
  double seconds = 0;            // of one
  double tokens_per_second = 0;
  double work = 0;               // of one: FLOPs of a prompt; bytes of a step
  double rate = 0;               // work / s
  double machine_rate = 0;       // 0: was not measured
  double share = 0;              // of machine_rate
  double cpu_seconds = 0, cpu_share = 0;
};

PassSummary summarize_prompts(const GenerateTimes& times);
PassSummary summarize_steps(const GenerateTimes& times);

// A line of prompts, and one of steps if there were any.
std::string to_text(const GenerateTimes& times);
// {"prompts": {..}, "steps": {..}}
JsonValue to_json(const GenerateTimes& times);

// The FLOPs of a model's prompts, and no pass yet.
GenerateTimes times_of_no_pass(const ModelConfig& model);

// The machine's best rates, measured between the passes of a generation.
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
