// Prints rates of matrix products (forward, input gradient, weight gradient) on one thread, by shape, and what intervals of keys
// take of attention:
//   perf_device [seconds per measurement]
// Operands are random; medians over repeated runs, in CPU seconds of this thread, so that a busy machine disturbs them less.
// ONEDNN_VERBOSE=1 shows the kernels oneDNN chooses.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/clock.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/multiply_rates.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/device/operands.h"

namespace trident {
namespace {

// Median seconds of f(), run for about `budget` seconds after one warm-up run.
template <class F>
double median_seconds(double budget, F&& f) {
  f();
  std::vector<double> samples;
  const double end = monotonic_seconds() + budget;
  while (samples.size() < 3 || monotonic_seconds() < end) {
    const double start = thread_cpu_seconds();
    f();
    samples.push_back(thread_cpu_seconds() - start);
  }
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
  return samples[samples.size() / 2];
}

double product_rate(CpuDevice& device, OnednnMatmul& names, const MatmulShape& s, double budget, std::string& entry) {
  const bool ta = s.transpose_a == Transpose::kYes, tb = s.transpose_b == Transpose::kYes;
  const TestTensor a = std::move(TestTensor(s.in, ta ? Shape{s.k, s.m} : Shape{s.m, s.k}).randomize("a"));
  const TestTensor b = std::move(TestTensor(s.in, tb ? Shape{s.n, s.k} : Shape{s.k, s.n}).randomize("b"));
  const TestTensor out(s.out, {s.m, s.n});
  const TestTensor workspace(DType::kU8, {device.ops().prepare_matmul(s)});
  names.prepare(s);
  entry = names.entry_point(s);
  const double seconds = median_seconds(budget, [&] {
    device.ops().run(device.compute_stream(), op::Matmul{{out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b,
                                                          s.accumulate, workspace.view()}});
  });
  return 2e-9 * static_cast<double>(s.m * s.n * s.k) / seconds;
}

// A layer y[M,N] = x[M,K] W[N,K]^T: its three products.
void print_layer(CpuDevice& device, OnednnMatmul& names, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                 double budget) {
  const Transpose no = Transpose::kNo, yes = Transpose::kYes;
  const MatmulShape products[] = {{m, n, k, no, yes, dtype, dtype, Accumulate::kNo},
                                  {m, k, n, no, no, dtype, dtype, Accumulate::kNo},
                                  {n, k, m, yes, no, dtype, DType::kF32, Accumulate::kYes}};
  const char* labels[] = {"forward", "dgrad", "wgrad"};
  for (int i = 0; i < 3; ++i) {
    std::string entry;
    const double rate = product_rate(device, names, products[i], budget, entry);
    fmt::print("{:<5} M={:<5} N={:<5} K={:<5} {:<8} {:>8.1f} GF/s  {}\n", to_string(dtype), m, n, k, labels[i], rate, entry);
  }
}

// Prints what one document and sixteen take, forward and backward, beside none: medians of pairs, one after the
// other.
void print_intervals(CpuDevice& device, DType dtype, std::int64_t length, std::int64_t width, double budget) {
  AttentionShape causal;
  causal.batch = 1, causal.query_heads = causal.kv_heads = 2, causal.query_length = causal.key_length = length;
  causal.head_dim = width, causal.scale = 1.0f / std::sqrt(static_cast<float>(width)), causal.dtype = dtype;
  AttentionShape intervals = causal;
  intervals.interval = length;
  const Shape shape{1, 2, length, width};
  TestTensor q(dtype, shape), k(dtype, shape), v(dtype, shape), d_out(dtype, shape);
  q.randomize("q"), k.randomize("k"), v.randomize("v"), d_out.randomize("d_out");
  const TestTensor out(dtype, shape), lse(DType::kF32, {1, 2, length}), d_q(dtype, shape), d_k(dtype, shape), d_v(dtype, shape);
  const TestTensor first_key(DType::kI32, {1, length});
  const TestTensor workspace(DType::kU8, {device.ops().attention_workspace(causal)});
  device.ops().attention_workspace(intervals);
  const auto seconds = [&](const AttentionShape& s) {
    const double start = thread_cpu_seconds();
    device.ops().run(device.compute_stream(), op::AttentionForward{s, out.view(), lse.view(), q.view(), k.view(), v.view(),
                                                                   workspace.view(), first_key.view()});
    device.ops().run(device.compute_stream(), op::AttentionBackward{s, d_q.view(), d_k.view(), d_v.view(), d_out.view(), out.view(),
                                                                    q.view(), k.view(), v.view(), lse.view(), workspace.view(),
                                                                    first_key.view()});
    return thread_cpu_seconds() - start;
  };
  for (const std::int64_t documents : {1, 16}) {
    for (std::int64_t i = 0; i < length; ++i)
      first_key.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(i * documents / length * (length / documents));
    std::vector<double> shares;
    const double end = monotonic_seconds() + 40 * budget;
    while (shares.size() < 5 || monotonic_seconds() < end) {
      const double whole = seconds(causal);
      shares.push_back(seconds(intervals) / whole);
    }
    std::nth_element(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 2), shares.end());
    fmt::print("{:<5} attention S={} D={}  {} documents take {:.3f} of causal, {} pairs\n", to_string(dtype), length, width,
               documents, shares[shares.size() / 2], shares.size());
  }
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  using namespace trident;
  const double budget = argc > 1 ? std::atof(argv[1]) : 0.3;
  Doorbell bell;
  CpuDevice device(bell, {});
  CpuDeviceOptions converts;
  converts.bf16_products = Bf16Products::kConverted;
  CpuDevice converting(bell, converts);
  const RowKernels& kernels = row_kernels(detect_cpu_features().level);
  OnednnMatmul names(bf16_products_at(bf16_over_fp32()), kernels), converted_names(Bf16Products::kConverted, kernels);
  fmt::print("{}\n", device.describe());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    print_layer(device, names, dtype, 512, 768, 768, budget);
    print_layer(device, names, dtype, 1024, 768, 3072, budget);
    print_layer(device, names, dtype, 256, 64, 256, budget);
    print_layer(device, names, dtype, 64, 64, 64, budget);
    if (dtype == DType::kBF16) print_layer(converting, converted_names, dtype, 512, 768, 768, budget);
    if (dtype == DType::kBF16) print_layer(converting, converted_names, dtype, 1024, 768, 3072, budget);
    print_intervals(device, dtype, 4096, 64, budget);
  }
  return 0;
}
