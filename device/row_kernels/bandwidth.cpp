// Prints the rate of the main row kernels beside a copy on the same arrays: row_kernels_bandwidth [baseline|avx2|avx512]
// [megabytes per array]. Bytes are those a kernel must move (each operand once, in-place ones twice); one thread; median of many
// runs.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "device/row_kernels/row_kernels.h"

namespace {

using namespace trident;
using Index = std::int64_t;
using Bytes = std::vector<unsigned char>;

constexpr Index kWidth = 2048;

double median_seconds(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) run();
  const auto start = Clock::now();
  while (seconds.size() < 7 || (Clock::now() - start < std::chrono::milliseconds(300) && seconds.size() < 2000)) {
    const auto before = Clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - before).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  return seconds[seconds.size() / 2];
}

void report(const char* name, Index bytes, Index elements, const std::function<void()>& run) {
  const double seconds = median_seconds(run);
  fmt::print("{:28} {:8.2f} GB/s {:8.3f} ns/element\n", name, static_cast<double>(bytes) / seconds * 1e-9,
             seconds / static_cast<double>(elements) * 1e9);
}

// `count` values of T between -2 and 2.
Bytes values(const RowKernels& k, RowType t, Index count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-22f - 2.0f;
  }
  Bytes result(static_cast<std::size_t>(count) * (t == RowType::kF32 ? 4 : 2));
  k.convert(t, result.data(), RowType::kF32, x.data(), count);
  return result;
}

float* floats(Bytes& x) { return reinterpret_cast<float*>(x.data()); }

void measure(const RowKernels& k, RowType t, Index rows) {
  const Index n = rows * kWidth, e = t == RowType::kF32 ? 4 : 2;
  Bytes a = values(k, t, 2 * n), b = values(k, t, n), c = values(k, t, 2 * n), weight = values(k, t, kWidth);
  std::vector<float> rstd(static_cast<std::size_t>(rows)), sum(rstd.size()), target(rstd.size()), d_weight(kWidth);
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), 17);
  const VocabularyShard shard{kWidth, 0, kWidth};
  fmt::print("\n{} {}, {} rows of {} ({:.1f} MB per array)\n", to_string(k.level), t == RowType::kF32 ? "f32" : "bf16", rows,
             kWidth, static_cast<double>(n * e) * 1e-6);
  report("copy (memcpy)", 2 * n * e, n, [&] { std::memcpy(c.data(), a.data(), static_cast<std::size_t>(n * e)); });
  report("rms_norm_forward", 2 * n * e, n,
         [&] { k.rms_norm_forward(t, c.data(), rstd.data(), a.data(), weight.data(), rows, kWidth, 1e-5f); });
  report("rms_norm_backward", 3 * n * e, n, [&] {
    k.rms_norm_backward(t, c.data(), d_weight.data(), b.data(), a.data(), weight.data(), rstd.data(), rows, kWidth, Accumulate::kNo,
                        Accumulate::kNo);
  });
  report("swiglu_forward", 3 * n * e, n, [&] { k.swiglu_forward(t, c.data(), a.data(), rows, kWidth); });
  report("swiglu_backward", 5 * n * e, n, [&] { k.swiglu_backward(t, c.data(), b.data(), a.data(), rows, kWidth); });
  report("gelu_forward", 2 * n * e, n, [&] { k.gelu_forward(t, c.data(), a.data(), n); });
  report("gelu_backward", 3 * n * e, n, [&] { k.gelu_backward(t, c.data(), b.data(), a.data(), n); });
  report("cross_entropy_stats", n * e, n,
         [&] { k.cross_entropy_stats(t, rstd.data(), sum.data(), target.data(), a.data(), targets.data(), rows, shard); });
  report("cross_entropy_backward", 2 * n * e, n,
         [&] { k.cross_entropy_backward(t, a.data(), rstd.data(), sum.data(), targets.data(), rows, shard, 1.0f, nullptr); });
  report("cross_entropy_gradient", 2 * n * e, n,
         [&] { k.cross_entropy_gradient(t, a.data(), sum.data(), target.data(), targets.data(), rows, shard, 1.0f, nullptr); });
  Bytes w = values(k, RowType::kF32, n), m = w, v = Bytes(w.size()), g = w;
  const UpdateNumbers numbers{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, 1.1f, 1.2f};
  const auto update = [&](UpdateRule rule, const RoundedElements* at_random) {
    k.update(rule, t, b.data(), floats(w), {{floats(m), floats(v)}}, floats(g), n, numbers, at_random);
  };
  report("adamw", n * (7 * 4 + (t == RowType::kF32 ? 4 : 2)), n, [&] { update(UpdateRule::kAdamW, nullptr); });
  report("lion", n * (5 * 4 + (t == RowType::kF32 ? 4 : 2)), n, [&] { update(UpdateRule::kLion, nullptr); });
  if (t == RowType::kBF16) {
    const auto at_random = [&](const char* name, const RoundedElements& elements) {
      report(name, n * (7 * 4 + 2), n, [&] { update(UpdateRule::kAdamW, &elements); });
    };
    at_random("adamw at random", {{1, 2}, 0, 0, kWidth, kWidth});
    at_random("adamw at random, half rows", {{1, 2}, 0, 0, kWidth / 2, kWidth});
  }
  std::vector<double> squares(static_cast<std::size_t>(n / 64));
  report("sum_squares", n * 4, n, [&] { k.sum_squares(squares.data(), floats(g), n); });
  const std::vector<std::int64_t> samples{0};
  const DropoutSpec spec{0.1f, {1, 2}, rows, 0};
  report("dropout", 2 * n * e, n, [&] { k.dropout(t, c.data(), b.data(), samples.data(), rows, 1, kWidth, spec); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "avx512";
  const IsaLevel level = name == "baseline" ? IsaLevel::kBaseline : name == "avx2" ? IsaLevel::kAvx2 : IsaLevel::kAvx512;
  const Index megabytes = argc > 2 ? std::atoll(argv[2]) : 64;
  for (const RowType t : {RowType::kF32, RowType::kBF16})
    measure(row_kernels(level), t, std::max<Index>(1, megabytes * 1'000'000 / (kWidth * (t == RowType::kF32 ? 4 : 2))));
}
