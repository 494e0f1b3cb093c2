// The result of `trident bench`, as values, as a table and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "core/json_reader.h"
#include "core/work_kind.h"
#include "device/cpu/multiply_rates.h"
#include "device/op_values.h"

namespace trident {

// Calls of one operation in one step.
struct Work {
  WorkKind kind{};
  std::string_view operation;
  std::int64_t calls = 0;
  double seconds = 0;
  double flops = 0;  // of products; attention's as far as the mask leaves them
  double bytes = 0;  // that must move: every operand once, twice in place
  std::variant<std::monostate, MatmulShape, AttentionShape> shape = {};  // of one call, where it is a product or attention
};

struct CollectiveRate {
  std::string operation;
  double bytes = 0;    // of the whole operand, on each rank
  double seconds = 0;  // of one call
  double moved = 0;    // bytes that must move at least, counted as CollectiveRates::floor_rate counts them
};

// Rates of ranks that exchange in one way.
struct CollectiveRates {
  std::string way;         // "threads by NCCL"
  int ranks = 0;
  std::string skipped;     // why there is nothing else; empty if there is
  std::string floor_of;    // what moves floor_rate
  double floor_rate = 0;   // bytes/s
  std::vector<CollectiveRate> rates;

  double floor_seconds(const CollectiveRate& rate) const { return rate.moved / floor_rate; }
};

struct BenchReport {
  std::string device, why;  // "device = auto: ..."
  DType compute = DType::kF32;
  std::vector<MultiplyRate> instructions;  // of a CPU, with all threads
  double peak_flops = 0;                   // FLOP/s of the one that products in `compute` use; of a GPU matmul_flops
  double disturbed_peak = 0;               // what it was measured as, where a product was clearly faster; else 0
  double matmul_flops = 0;                 // of a large product in `compute`
  double copy_bytes = 0;    // bytes/s, read and written
  double read_bytes = 0;    // of a CPU, read alone
  std::vector<CollectiveRates> collectives;
  std::int64_t tokens = 0;     // of the step
  double row_units = 0;        // row_units_per_block()
  // 6 N tokens, of N parameters that products multiply (4 N of frozen ones), and 14 D for each head and pair that it sees
  double step_flops = 0;
  double step_seconds = 0;     // as training does it
  double metered_seconds = 0;  // with every operation waited for
  std::vector<Work> work;      // of the metered step, by operation
  std::vector<Work> products;  // of these the products, by shape

  // The least time this machine needs for it: its products at peak_flops or its bytes at copy_bytes, whichever takes longer.
  double floor_seconds(const Work& work) const;
  double fastest_product() const;  // FLOP/s of any product that was timed
  void raise_peak();               // to that
  // The bytes that the optimizer must move in the step, and the least time that it needs: step_flops at peak_flops, and then those.
  double optimizer_bytes() const;
  double step_floor_seconds() const { return step_flops / peak_flops + optimizer_bytes() / copy_bytes; }
};

std::string to_text(const BenchReport& report, std::size_t columns = std::string::npos);
JsonValue to_json(const BenchReport& report);

struct BenchOptions {
  double seconds = 0.3;      // of each rate
  int steps = 3;             // of training; the median counts
  int collective_ranks = 2;  // as threads of this process
  double collective_megabytes = 0;  // of an operand; 0: 16 on CPUs, 256 on GPUs
};

}  // namespace trident
