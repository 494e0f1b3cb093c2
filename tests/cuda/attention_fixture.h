// Attention on a CUDA device against plain loops in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "device/cuda/cudnn_attention.h"
#include "device/no_allocation.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cudnn.h"
#include "tests/support/attention_tensors.h"

namespace trident::testing {

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

inline void check(Fixture& f, const AttentionShape& s) {
  SCOPED_TRACE(describe(s));
  Tensors t(s);
  run(f, s, t);
  expect_attention(s, t);
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
