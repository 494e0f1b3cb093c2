// Rates of a GPU and its usual node, as numbers with their sources: the constants of prices.
//
// A profile is a JSON file (configs/hardware/*.json); a cluster's file may change some of it (planner/price/cluster.h). Every
// constant in it is {"value": x, "source": "where the number is from"}: a constant without a source is refused, and so are unknown
// keys and missing ones but peak_tf32_tflops, peak_fp32_tflops and gemm.least_width.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "planner/price/sourced_object.h"

namespace trident {

// GEMMs: a wave of tiles on all multiprocessors runs at `sustained` of the peak once the inner dimension is long;
// `inner_overhead` is what a tile costs besides its inner loop, in steps of that loop.
struct GemmRates {
  double sustained = 0;       // fraction of the dense peak, long runs (clocks under load)
  double inner_overhead = 0;  // elements of k
  double wgrad_factor = 1;    // time of a weight gradient over that of a forward of the same shape
  int early_year = 0;         // up to this year libraries reached `early_factor` of the rates
  double early_factor = 1;
  int least_width = 0;        // of the models that these were fitted on, over tensor ranks; 0: they were not fitted
  double batched = 1;         // rate of a batched GEMM of attention over that of a plain one
};

// Fused attention by the kernel's name ("flash1", ...): fraction of the 16-bit peak, counting the causal half of the products.
struct AttentionRates {
  std::string kernel;
  double forward = 0;
  double backward = 0;
};

struct LinkRates {
  double bytes_per_s = 0;  // one direction, per GPU
  double fraction = 0;     // of it that a large collective reaches
  double message_fraction = 0;  // of it that one pair reaches
  double hop_s = 0;        // latency of one ring step
  double start_s = 0;      // fixed cost of a collective
};

struct GpuRates {
  std::string file;  // "h100_sxm": of its file, without folder and .json
  std::string name;
  std::vector<std::string> aliases;  // other names of the same device in published tables
  double peak_16bit = 0;             // dense FLOP/s
  double peak_fp8 = 0;               // dense FLOP/s; 0: no such units
  double peak_fp4 = 0;               // likewise
  std::optional<double> peak_tf32;   // likewise; nothing: the profile does not say
  std::optional<double> peak_fp32;   // without tensor cores; nothing: likewise
  double device_bytes = 0;
  double memory_bytes_per_s = 0;
  int multiprocessors = 0;
  double row_fraction = 0;    // of memory_bytes_per_s that row kernels reach
  double score_fraction = 0;  // likewise of kernels over attention scores: softmax and dropout
  double kernel_start_s = 0;  // fixed device time of a kernel
  double context_bytes = 0;   // of device memory outside the allocator: driver context, libraries, communicators
  double communicator_bytes = 0;  // of one communicator's channels, outside the allocator
  double compute_slowdown = 1;  // of compute that runs beside a collective
  double network_slowdown = 1;  // of a collective that runs beside compute
  double fp8_gain = 1;          // part of (peak_fp8 / peak_16bit) that a GEMM in fp8 gains
  int nvlink_domain = 0;  // GPUs that one NVLink fabric joins beyond a node; 0: those of a node
  GemmRates gemm;
  std::vector<AttentionRates> attention;
  LinkRates nvlink;
  LinkRates network;  // per GPU, of the usual node
};

// Throws ConfigError: a key that is unknown, missing or out of range, a constant without source. `where` begins the message.
GpuRates gpu_rates_from_json(const JsonValue& object, std::string_view where);

// Replaces those members of `link` that `object` has, under the names of a profile. Throws likewise.
void change_link(SourcedObject object, LinkRates& link);

// The profile that has `gpu` as its name or alias, or nullptr.
const GpuRates* find_profile(const std::vector<GpuRates>& profiles, std::string_view gpu);

}  // namespace trident
