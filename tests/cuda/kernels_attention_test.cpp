// The attention kernels among all kernels: every instance against plain loops in double. Shapes and offsets are
// tests/conformance's, hard cases cudnn_attention_test.cpp's.
#include <cmath>
#include <cstdint>

#include "device/cuda/kernels/attention_f32.h"
#include "device/cuda/kernels/cached_attention.h"
#include "tests/cuda/kernel_table.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/cuda/staged_operands.h"
#include "tests/device/row_kernels/kernel_fixture.h"
#include "tests/support/reference_attention.h"

namespace trident::testing {
namespace {

void check_attention(Placement placement, RowType t, Index head_dim) {
  const Index batch = 1, heads = 2, kv_heads = 1, queries = 5, keys = 37;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const reference::Attention r{batch, heads, kv_heads, queries, keys, head_dim, keys - queries, 0, scale, true};
  const cuda_kernels::AttentionExtents extents{batch, heads, kv_heads, queries, keys, head_dim, keys - queries, scale, 1};
  const Index of_queries = batch * heads * queries * head_dim, of_keys = batch * kv_heads * keys * head_dim,
              rows = batch * heads * queries;
  Random random(static_cast<unsigned>(head_dim));
  const Values q = random.values(t, of_queries), k = random.values(t, of_keys), v = random.values(t, of_keys);
  const Values d_out = random.values(t, of_queries);
  Values out(q.size()), d_q(q.size()), d_k(k.size()), d_v(k.size()), lse(static_cast<std::size_t>(rows));
  reference::attention_forward(r, out.data(), lse.data(), q.data(), k.data(), v.data());
  Operand oq(t, q), ok(t, k), ov(t, v), od(t, d_out), oo(t, of_queries), ol(RowType::kF32, rows);
  Operand odq(t, of_queries), odk(t, of_keys), odv(t, of_keys), delta(RowType::kF32, rows);
  {
    StagedOperands s(placement);
    cuda_kernels::attention_f32_forward(s.stream(), t, s.out(t, oo.data(), of_queries), s.out(ol.floats(), rows),
                                        s.in(t, oq.data(), of_queries), s.in(t, ok.data(), of_keys), s.in(t, ov.data(), of_keys),
                                        extents);
  }
  expect_close(oo.values(), out, t, "out", 1e-5);
  expect_close(ol.values(), lse, RowType::kF32, "lse", 1e-5);
  const Values rounded_out = oo.values(), rounded_lse = ol.values();
  reference::attention_backward(r, d_q.data(), d_k.data(), d_v.data(), d_out.data(), rounded_out.data(), q.data(), k.data(),
                                v.data(), rounded_lse.data());
  {
    StagedOperands s(placement);
    cuda_kernels::attention_f32_backward(
        s.stream(), t, s.out(t, odq.data(), of_queries), s.out(t, odk.data(), of_keys), s.out(t, odv.data(), of_keys),
        s.out(delta.floats(), rows), s.in(t, od.data(), of_queries), s.in(t, oo.data(), of_queries), s.in(t, oq.data(), of_queries),
        s.in(t, ok.data(), of_keys), s.in(t, ov.data(), of_keys), s.in(ol.floats(), rows), extents);
  }
  expect_close(odq.values(), d_q, t, "d_q", 1e-5);
  expect_close(odk.values(), d_k, t, "d_k", 1e-5);
  expect_close(odv.values(), d_v, t, "d_v", 1e-5);
}

// Sample 0 at the cache's beginning, sample 1 with rows behind its end.
void check_cached(Placement placement, RowType t, Index head_dim) {
  const Index batch = 2, heads = 4, kv_heads = 2, queries = 3, keys = 150;
  const std::int64_t first[] = {0, 148};
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const Index of_queries = heads * queries * head_dim, of_keys = kv_heads * keys * head_dim, rows = heads * queries;
  Random random(static_cast<unsigned>(head_dim));
  const Values q = random.values(t, batch * of_queries), k = random.values(t, batch * of_keys);
  const Values v = random.values(t, batch * of_keys);
  Values out(q.size()), lse(static_cast<std::size_t>(batch * rows));
  for (Index b = 0; b < batch; ++b) {
    const reference::Attention r{1, heads, kv_heads, queries, keys, head_dim, first[b], 0, scale, true};
    reference::attention_forward(r, out.data() + b * of_queries, lse.data() + b * rows, q.data() + b * of_queries,
                                 k.data() + b * of_keys, v.data() + b * of_keys);
  }
  Operand oq(t, q), ok(t, k), ov(t, v), oo(t, batch * of_queries), ol(RowType::kF32, batch * rows);
  {
    StagedOperands s(placement);
    cuda_kernels::cached_attention(s.stream(), t, s.out(t, oo.data(), batch * of_queries), s.out(ol.floats(), batch * rows),
                                   s.in(t, oq.data(), batch * of_queries), s.in(t, ok.data(), batch * of_keys),
                                   s.in(t, ov.data(), batch * of_keys), {batch, heads, kv_heads, queries, keys, head_dim, scale},
                                   first);
  }
  expect_close(oo.values(), out, t, "out", 1e-5);
  expect_close(ol.values(), lse, RowType::kF32, "lse", 1e-5);
}

TEST(CudaAttentionKernels, AgreeWithTheReference) {
  for (const Placement placement : {Placement::kAligned, Placement::kMisaligned}) {
    const bool aligned = placement == Placement::kAligned;
    const SimulatedScope scope({.fiber_order = aligned ? simulated::FiberOrder::kReverse : simulated::FiberOrder::kWarpByWarp});
    for (const RowType t : kRowTypes)
      for (const Index head_dim : {20, 72}) {
        SCOPED_TRACE("heads of " + std::to_string(head_dim) + " " + to_string(t));
        check_attention(placement, t, head_dim);
        check_cached(placement, t, head_dim);
      }
  }
}

}  // namespace
}  // namespace trident::testing
