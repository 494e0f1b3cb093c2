// Attention on a CUDA device against plain loops in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "device/cuda/cudnn_attention.h"
#include "device/no_allocation.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cudnn.h"
#include "tests/support/reference_attention.h"

namespace trident::testing {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline AttentionShape shape(std::int64_t b, std::int64_t n, std::int64_t k, std::int64_t sq, std::int64_t sk, std::int64_t d,
                     DType dtype) {
  AttentionShape s;
  s.batch = b, s.query_heads = n, s.kv_heads = k, s.query_length = sq, s.key_length = sk, s.head_dim = d, s.dtype = dtype;
  s.scale = 1.0f / std::sqrt(static_cast<float>(d));
  return s;
}
inline AttentionShape full(AttentionShape s) {
  s.causal = false;
  return s;
}
inline AttentionShape at(AttentionShape s, std::int64_t query_offset, std::int64_t key_offset) {
  s.query_offset = query_offset, s.key_offset = key_offset;
  return s;
}

inline constexpr DType kF = DType::kF32, kH = DType::kBF16, kF16 = DType::kF16;

struct Tensors {
  TestTensor q, k, v, d_out, out, lse, d_q, d_k, d_v;
  explicit Tensors(const AttentionShape& s)
      : q(s.dtype, {s.batch, s.query_heads, s.query_length, s.head_dim}),
        k(s.dtype, {s.batch, s.kv_heads, s.key_length, s.head_dim}),
        v(s.dtype, k.view().shape()),
        d_out(s.dtype, q.view().shape()),
        out(s.dtype, q.view().shape()),
        lse(kF, {s.batch, s.query_heads, s.query_length}),
        d_q(s.dtype, q.view().shape()),
        d_k(s.dtype, k.view().shape()),
        d_v(s.dtype, k.view().shape()) {
    q.randomize("q", 2), k.randomize("k", 2), v.randomize("v"), d_out.randomize("d_out");
    for (TestTensor* t : {&out, &lse, &d_q, &d_k, &d_v}) t->fill(kNaN);
  }
};

struct Fixture {
  explicit Fixture(const CudnnAttentionOptions& options = {}) : handle(0), attention(handle, options) {}
  CudnnHandle handle;
  CudnnAttention attention;
  TestStream stream;
};

// Forward and backward; the results land in `t`.
inline void run(Fixture& f, const AttentionShape& s, Tensors& t) {
  const std::int64_t bytes = f.attention.prepare(s);
  TestTensor scratch(DType::kU8, {bytes});
  const DeviceTensor workspace(scratch);
  const DeviceTensor q(t.q), k(t.k), v(t.v), d_out(t.d_out), out(t.out), lse(t.lse), d_q(t.d_q), d_k(t.d_k), d_v(t.d_v);
  {
    const NoAllocationScope step("attention");
    f.attention.forward(f.stream.get(), s, out.view(), lse.view(), q.view(), k.view(), v.view(), workspace.view().data());
    f.attention.backward(f.stream.get(), s, d_q.view(), d_k.view(), d_v.view(), d_out.view(), out.view(), q.view(), k.view(),
                         v.view(), lse.view(), workspace.view().data());
  }
  f.stream.synchronize();
  for (const DeviceTensor* x : {&workspace, &out, &lse, &d_q, &d_k, &d_v}) EXPECT_TRUE(x->guards_intact());
  t.out = out.download(), t.lse = lse.download(), t.d_q = d_q.download(), t.d_k = d_k.download(), t.d_v = d_v.download();
}

// |got - want| <= tolerance * (largest |want|), elementwise.
inline void expect_close(const char* what, const TestTensor& got, const std::vector<double>& want, double tolerance) {
  double largest = 1e-3;
  for (const double x : want)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double x = got.at(static_cast<std::int64_t>(i));
    if (std::isinf(want[i])) {
      ASSERT_EQ(x, want[i]) << what << " " << i;
    } else {
      ASSERT_NEAR(x, want[i], tolerance * largest) << what << " " << i;
    }
  }
}

inline void check(Fixture& f, const AttentionShape& s) {
  SCOPED_TRACE(describe(s));
  Tensors t(s);
  run(f, s, t);
  const reference::Attention r{s.batch,    s.query_heads,  s.kv_heads,   s.query_length, s.key_length,
                               s.head_dim, s.query_offset, s.key_offset, s.scale,        s.causal};
  std::vector<double> out(static_cast<std::size_t>(t.q.view().num_elements())), d_q(out.size());
  std::vector<double> lse(static_cast<std::size_t>(t.lse.view().num_elements()));
  std::vector<double> d_k(static_cast<std::size_t>(t.k.view().num_elements())), d_v(d_k.size());
  const std::vector<double> q = t.q.values(), k = t.k.values(), v = t.v.values(), d_out = t.d_out.values();
  reference::attention_forward(r, out.data(), lse.data(), q.data(), k.data(), v.data());
  reference::attention_backward(r, d_q.data(), d_k.data(), d_v.data(), d_out.data(), out.data(), q.data(), k.data(), v.data(),
                                lse.data());
  // p, d_score and results are rounded to 8 bits (bf16) or 11 (f16).
  const double tolerance = s.dtype == kF ? 4e-6 : s.dtype == kH ? 2e-2 : 2e-2 / 8;
  expect_close("out", t.out, out, tolerance);
  expect_close("lse", t.lse, lse, 4e-6);
  expect_close("d_q", t.d_q, d_q, tolerance);
  expect_close("d_k", t.d_k, d_k, tolerance);
  expect_close("d_v", t.d_v, d_v, tolerance);
}

// That `s` goes to cuDNN in both directions, and its numbers.
inline void check_cudnn_numbers(Fixture& f, const AttentionShape& s) {
  check(f, s);
  EXPECT_TRUE(f.attention.notes().empty()) << f.attention.notes().front();
}
// That our own kernels compute both directions of `s`, and their numbers.
inline void check_own_numbers(const AttentionShape& s) {
  Fixture f;
  const std::int64_t executions = simulated::cudnn_counts().executions;
  check(f, s);
  EXPECT_EQ(simulated::cudnn_counts().executions, executions) << describe(s);
}

inline CudnnAttentionOptions fast() { return {.determinism = AttentionDeterminism::kNo}; }
inline CudnnAttentionOptions in_small_pieces() { return {.d_score_bytes = 1}; }

}  // namespace trident::testing
