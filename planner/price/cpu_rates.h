// Measured rates of a machine's processors in training: the profile that `trident bench --calibrate` writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/json_reader.h"
#include "device/op_flags.h"
#include "planner/price/log_table.h"

namespace trident {

// Seconds of one call, with all cores at work: of `threads` threads of one rank.
struct ProductTimes {
  int threads = 1;
  DType in{};
  Transpose transpose_a{}, transpose_b{};
  Accumulate accumulate{};  // a weight's gradient of the first micro-batch overwrites, those of the others are added up
  LogTable seconds;         // by m, n, k
  std::string source;
};

// The width of a head that its attention takes as long as: kernels go through heads in vectors of sixteen.
double priced_head_dim(std::int64_t head_dim);

struct OperationTimes {
  int threads = 1;
  DType compute{};        // of the model that calls it
  std::string operation;  // "gelu_forward"
  // By bytes that must move; of attention, of one query head of one sample, by length and head_dim; causal.
  LogTable seconds;
  std::string source;
};

// CPU seconds of one rank in one call, waiting for the others not counted beyond what it spins. Of messages: of both sides.
struct CollectiveTimes {
  std::string operation;  // "all_reduce", "reduce_scatter", "all_gather", "message"
  DType dtype{};          // of what is added up; of others f32, because bytes alone count
  int ranks = 2;          // of the group
  int world = 2;          // ranks on the machine, all of them in such groups
  LogTable seconds;       // by bytes of the whole operand
  std::string source;
};

struct CpuConstants {
  double step_seconds = 0;        // of a rank in a step, beside what follows
  double call_seconds = 0;        // between operations, for each
  double collective_seconds = 0;  // for each call of a group of ranks with cores of their own, by the clock
  double skew_root_seconds = 0;   // such ranks have drifted apart by this x the root of the seconds that they worked since they met
  double shared_seconds = 0;      // that in place of it where ranks share cores: CPU seconds, of going to sleep and waking
  // Such a rank finds its caches full of what others did: it works so much x the root of the seconds that it worked since they met
  // longer.
  double shared_root_seconds = 0;
};

// Resident beside the arenas.
struct CpuMemory {
  DType compute{};
  double process_bytes = 0;  // program, libraries, what they made
  double rank_bytes = 0;     // likewise, for each rank that is a thread
  std::string source;
};

struct CpuRates {
  std::string name;       // "cpu"
  std::string processor;  // processor_name()'s: train/plan/machine.h
  int cores = 1;
  std::string date;       // of the measurement, "2026-11-25"; empty: not known
  std::optional<double> bf16_over_fp32;  // as bf16_products_at() takes it; nothing: an earlier version's, whose tables say it
  // FLOP/s of a core, all of them at work, by the instruction that multiplies fp32, and by the one that multiplies bf16 if there is
  // one: the peak that MFU is a share of. 0: not known, as in profiles of earlier versions.
  double fp32_peak = 0, bf16_peak = 0;
  CpuConstants constants;
  std::string constants_source;
  std::vector<CpuMemory> memory;
  std::vector<ProductTimes> products;
  std::vector<OperationTimes> attention, operations;
  std::vector<CollectiveTimes> collectives;
  std::string disturbance = {};  // how other programs disturbed the measurement; empty: not

  bool has_peaks() const { return fp32_peak > 0 && (bf16_peak > 0 || bf16_over_fp32.value_or(0) == 0); }
  double peak(DType multiplied) const { return multiplied == DType::kBF16 ? bf16_peak : fp32_peak; }
};

// "the profile cpu of AMD EPYC (...), measured 2026-11-25".
std::string name_of_profile(const CpuRates& rates);

// Throws ConfigError that begins with "<where>: " or names the key below it: a key that is missing, unknown, or holds what it must
// not. Which tables there are is not checked: CpuPrices asks for those that it needs.
CpuRates cpu_rates_from_json(const JsonValue& json, const std::string& where);
JsonValue to_json(const CpuRates& rates);

// That of configs/cpu/cpu.json, which the program carries within itself.
CpuRates shipped_cpu_rates();
CpuRates read_cpu_rates(const std::string& file);
// Whether a profile is of processors: {"cores": ...}.
bool is_cpu_profile(const JsonValue& json);

// configs/cpu/cpu.json.
std::string_view shipped_cpu_text();

}  // namespace trident
