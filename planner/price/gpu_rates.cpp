#include "planner/price/gpu_rates.h"

#include <algorithm>
#include <filesystem>


namespace trident {

namespace {

// The members of `object` that are not there stay as they are in `link`, if they may be missing.
void read_link(SourcedObject& object, bool whole, LinkRates& link) {
  const auto read = [&](std::string_view key, double low, double high, double unit, double& value) {
    if (whole || object.has(key)) value = object.number(key, low, high) * unit;
  };
  read("gb_per_s", 0.01, 1e5, 1e9, link.bytes_per_s);
  read("fraction", 0.01, 1.5, 1, link.fraction);  // above 1: the switch adds, and a GPU sends each element once
  read("message_fraction", 0.01, 1, 1, link.message_fraction);
  read("hop_us", 0, 1e4, 1e-6, link.hop_s);
  read("start_us", 0, 1e5, 1e-6, link.start_s);
  object.finish();
}

LinkRates whole_link(SourcedObject object) {
  LinkRates link;
  read_link(object, true, link);
  return link;
}

GemmRates read_gemm(SourcedObject object) {
  GemmRates gemm;
  gemm.sustained = object.number("sustained", 0.05, 1);
  gemm.inner_overhead = object.number("inner_overhead", 0, 1e5);
  gemm.wgrad_factor = object.number("wgrad_factor", 0.5, 3);
  gemm.early_year = object.whole_number("early_year", 0, 9999);
  gemm.early_factor = object.number("early_factor", 0.1, 1);
  gemm.batched = object.number("batched", 0.05, 1.5);
  if (object.has("least_width")) gemm.least_width = object.whole_number("least_width", 1, 1 << 20);
  object.finish();
  return gemm;
}

}  // namespace

void change_link(SourcedObject object, LinkRates& link) { read_link(object, false, link); }

GpuRates gpu_rates_from_json(const JsonValue& value, std::string_view where) {
  SourcedObject object(value, std::string(where));
  GpuRates p;
  p.file = std::filesystem::path(where).stem().string();
  p.name = object.text("name");
  p.aliases = object.texts("aliases");
  p.peak_16bit = object.number("peak_16bit_tflops", 1, 1e5) * 1e12;
  p.peak_fp8 = object.number("peak_fp8_tflops", 0, 1e5) * 1e12;
  p.peak_fp4 = object.number("peak_fp4_tflops", 0, 1e6) * 1e12;
  if (object.has("peak_tf32_tflops")) p.peak_tf32 = object.number("peak_tf32_tflops", 0, 1e5) * 1e12;
  if (object.has("peak_fp32_tflops")) p.peak_fp32 = object.number("peak_fp32_tflops", 0.1, 1e5) * 1e12;
  p.device_bytes = object.number("device_bytes", 1e9, 1e13);
  p.memory_bytes_per_s = object.number("memory_gb_per_s", 10, 1e6) * 1e9;
  p.multiprocessors = object.whole_number("multiprocessors", 1, 4096);
  p.row_fraction = object.number("row_fraction", 0.05, 1);
  p.score_fraction = object.number("score_fraction", 0.05, 1);
  p.kernel_start_s = object.number("kernel_start_us", 0, 1e4) * 1e-6;
  p.context_bytes = object.number("context_bytes", 0, 1e11);
  p.communicator_bytes = object.number("communicator_bytes", 0, 1e11);
  p.compute_slowdown = object.number("compute_slowdown", 1, 5);
  p.network_slowdown = object.number("network_slowdown", 1, 5);
  p.fp8_gain = object.number("fp8_gain", 0.1, 1);
  p.nvlink_domain = object.whole_number("nvlink_domain", 0, 4096);
  p.gemm = read_gemm(object.object("gemm"));
  SourcedObject kernels = object.object("attention");
  for (const std::string& kernel : kernels.keys()) {
    SourcedObject rates = kernels.object(kernel);
    p.attention.push_back({kernel, rates.number("forward", 0.01, 1.5), rates.number("backward", 0.01, 1.5)});
    rates.finish();
  }
  kernels.finish();
  p.nvlink = whole_link(object.object("nvlink"));
  p.network = whole_link(object.object("network"));
  object.finish();
  return p;
}

const GpuRates* find_profile(const std::vector<GpuRates>& profiles, std::string_view gpu) {
  for (const GpuRates& p : profiles)
    if (p.name == gpu || std::find(p.aliases.begin(), p.aliases.end(), gpu) != p.aliases.end()) return &p;
  return nullptr;
}

}  // namespace trident
