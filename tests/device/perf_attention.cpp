// Prints what causal attention takes, for scripts/bench_attention:
//   perf_attention DTYPE BATCH HEADS KV_HEADS LENGTH HEAD_DIM THREADS SECONDS [DOCUMENTS]
// A sample holds DOCUMENTS of one length, and tokens see their own alone. One line of JSON: medians of forward and backward in
// seconds by the clock. Operands are random.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "device/cpu/cpu_device.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/device/operands.h"

namespace trident {
namespace {

double median(std::vector<double> samples) {
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
  return samples[samples.size() / 2];
}

template <class F>
double seconds_of(const F& f) {
  const double start = monotonic_seconds();
  f();
  return monotonic_seconds() - start;
}

void print_rates(const AttentionShape& s, int threads, double budget, std::int64_t documents) {
  Doorbell bell;
  CpuDevice device(bell, {threads, std::nullopt, std::nullopt});
  const Shape queries{s.batch, s.query_heads, s.query_length, s.head_dim}, keys{s.batch, s.kv_heads, s.key_length, s.head_dim};
  TestTensor q(s.dtype, queries), k(s.dtype, keys), v(s.dtype, keys), d_out(s.dtype, queries);
  q.randomize("q"), k.randomize("k"), v.randomize("v"), d_out.randomize("d_out");
  const TestTensor out(s.dtype, queries), lse(DType::kF32, {s.batch, s.query_heads, s.query_length}), d_q(s.dtype, queries),
      d_k(s.dtype, keys), d_v(s.dtype, keys), workspace(DType::kU8, {device.ops().attention_workspace(s)});
  const TestTensor first_key(DType::kI32, {s.batch, s.query_length});
  for (std::int64_t i = 0; s.interval > 0 && i < s.batch * s.query_length; ++i)
    first_key.view().as<std::int32_t>()[i] =
        static_cast<std::int32_t>(i % s.query_length * documents / s.query_length * (s.query_length / documents));
  const auto forward = [&] {
    device.ops().run(device.compute_stream(), op::AttentionForward{s, out.view(), lse.view(), q.view(), k.view(), v.view(),
                                                                   workspace.view(), first_key.view()});
  };
  const auto backward = [&] {
    device.ops().run(device.compute_stream(), op::AttentionBackward{s, d_q.view(), d_k.view(), d_v.view(), d_out.view(), out.view(),
                                                                    q.view(), k.view(), v.view(), lse.view(), workspace.view(),
                                                                    first_key.view()});
  };
  forward(), backward();
  std::vector<double> forwards, backwards;
  const double end = monotonic_seconds() + budget;
  while (forwards.size() < 3 || monotonic_seconds() < end) {
    forwards.push_back(seconds_of(forward));
    backwards.push_back(seconds_of(backward));
  }
  fmt::print("{{\"forward\": {}, \"backward\": {}}}\n", median(forwards), median(backwards));
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  using namespace trident;
  if (argc != 9 && argc != 10) {
    fmt::print(stderr, "usage: perf_attention DTYPE BATCH HEADS KV_HEADS LENGTH HEAD_DIM THREADS SECONDS [DOCUMENTS]\n");
    return 64;
  }
  const auto number = [&](int i) { return std::int64_t{std::atoll(argv[i])}; };
  AttentionShape s;
  s.dtype = std::string_view(argv[1]) == "bf16" ? DType::kBF16 : DType::kF32;
  s.batch = number(2), s.query_heads = number(3), s.kv_heads = number(4), s.query_length = s.key_length = number(5);
  s.head_dim = number(6), s.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  if (argc == 10) s.interval = s.key_length;
  print_rates(s, static_cast<int>(number(7)), std::atof(argv[8]), argc == 10 ? number(9) : 1);
  return 0;
}
