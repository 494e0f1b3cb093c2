// op_perf: rates of every operation on a device at one model's shapes, beside what a copy and a large product reach there.
//
// Bytes are those an operation must move (every operand once, twice in place); products count as attention does, without what the
// mask removes. Times are of calls in a row, the host waiting only at the end.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "core/clock.h"
#include "tests/conformance/builders.h"
#include "tests/conformance/case_table.h"
#include "tests/conformance/conformance.h"
#include "tests/conformance/device_call.h"
#include "tests/conformance/devices.h"

namespace trident::conformance {
namespace {

// Median of five batches that take about `budget` seconds together.
double seconds_per_call(Device& device, const OpCase& c, double budget) {
  DeviceCall call(device, c, draw_repeated(c, 1), std::byte{0});
  const auto batch = [&](int calls) {
    device.compute_stream().synchronize();
    const double start = monotonic_seconds();
    for (int i = 0; i < calls; ++i) call.run();
    device.compute_stream().synchronize();
    return (monotonic_seconds() - start) / calls;
  };
  batch(1);  // what only a first call does
  constexpr int kBatches = 5;
  const double once = batch(1);
  const int calls = static_cast<int>(std::clamp(budget / kBatches / std::max(once, 1e-9), 1.0, 1e4));
  std::vector<double> seconds;
  for (int i = 0; i < kBatches; ++i) seconds.push_back(batch(calls));
  std::nth_element(seconds.begin(), seconds.begin() + kBatches / 2, seconds.end());
  return seconds[kBatches / 2];
}

// Larger and larger copies until one takes long: the last one's rate. 2 bytes are moved for each that is copied.
double copy_bandwidth(Device& device, double budget) {
  const double long_enough = std::min(4e-3, budget);
  for (Index n = Index{1} << 22;; n *= 2) {
    const OpCase c = convert(DType::kF32, DType::kF32, n);
    const double seconds = seconds_per_call(device, c, budget);
    if (seconds >= long_enough || n >= Index{1} << 29) return c.bytes_moved() / seconds;
  }
}

// The best rate of larger and larger square products y = x W^T.
double matmul_peak(Device& device, DType t, double budget) {
  const double long_enough = std::min(0.05, budget);
  double best = 0;
  for (Index n = 512;; n *= 2) {
    const OpCase c = matmul({n, n, n, Transpose::kNo, Transpose::kYes, t, t, Accumulate::kNo}, normal());
    const double seconds = seconds_per_call(device, c, budget);
    best = std::max(best, c.flops / seconds);
    if (seconds >= long_enough || n >= 8192) return best;
  }
}

void print_rates(Device& device, DType t, const ModelShape& model, const std::string& filter, double copy, double budget) {
  const double peak = matmul_peak(device, t, budget);
  fmt::print("\n{}: products of squares reach {:.1f} GFLOP/s\n", to_string(t), peak * 1e-9);
  fmt::print("{:<66} {:>10} {:>8} {:>8} {:>9} {:>8}\n", "operation", "us/call", "GB/s", "of copy", "GFLOP/s", "of peak");
  for (const OpCase& c : perf_cases(t, model)) {
    if (!matches(filter, c.name())) continue;
    try {
      const double seconds = seconds_per_call(device, c, budget), bandwidth = c.bytes_moved() / seconds, rate = c.flops / seconds;
      fmt::print("{:<66} {:>10.1f} {:>8.1f} {:>7.0f}%", c.name(), seconds * 1e6, bandwidth * 1e-9, 100 * bandwidth / copy);
      fmt::print("{}\n", c.flops > 0 ? fmt::format(" {:>9.1f} {:>7.0f}%", rate * 1e-9, 100 * rate / peak) : "");
    } catch (const Error& error) {
      fmt::print("{:<66} refused: {}\n", c.name(), error.what());
    }
  }
}

int run(int argc, char** argv) {
  std::string name = "cpu", filter;
  ModelShape m;
  double budget = 0.2;
  int threads = 1;
  CudaOptions cuda;
  CLI::App app{"Prints the rates of every operation on a device at one model's shapes.", "op_perf"};
  app.add_option("--device", name, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--filter", filter, "operations to measure: patterns a:b-c");
  app.add_option("--seconds", budget, "per operation")->capture_default_str();
  app.add_option("--threads", threads, "of the CPU backend")->capture_default_str();
  app.add_option("--tokens", m.tokens, "of a micro-batch: a multiple of the sequence")->capture_default_str();
  app.add_option("--sequence", m.sequence)->capture_default_str();
  app.add_option("--hidden", m.hidden)->capture_default_str();
  app.add_option("--heads", m.heads)->capture_default_str();
  app.add_option("--kv-heads", m.kv_heads)->capture_default_str();
  app.add_option("--feed-forward", m.feed_forward)->capture_default_str();
  app.add_option("--vocabulary", m.vocabulary)->capture_default_str();
  app.add_flag("--epilogues", cuda.epilogues, "leave what follows products to the library, as cuda.epilogues does");
  CLI11_PARSE(app, argc, argv);
  if (m.sequence < 1 || m.heads < 1 || m.kv_heads < 1 || m.tokens % m.sequence != 0 || m.hidden % m.heads != 0 ||
      m.heads % m.kv_heads != 0)
    throw ConfigError(
        fmt::format("tokens = {}, sequence = {}, hidden = {}, heads = {}, kv-heads = {}: tokens must be a multiple of sequence, "
                    "hidden of heads and "
                    "heads of kv-heads",
                    m.tokens, m.sequence, m.hidden, m.heads, m.kv_heads));

  NamedDevice device(name, threads, cuda);
  const double copy = copy_bandwidth(*device, budget);
  fmt::print("{}; a copy moves {:.1f} GB/s\n", device->describe(), copy * 1e-9);
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16}) print_rates(*device, t, m, filter, copy, budget);
  return 0;
}

}  // namespace
}  // namespace trident::conformance

int main(int argc, char** argv) {
  try {
    return trident::conformance::run(argc, argv);
  } catch (const trident::Error& error) {
    fmt::print(stderr, "op_perf: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
