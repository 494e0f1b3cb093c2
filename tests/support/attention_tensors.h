// Attention reads and writes these in a test; its results are held against plain loops in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device/op_values.h"
#include "tests/device/operands.h"
#include "tests/support/reference_attention.h"

namespace trident::testing {

inline reference::Attention reference_shape(const AttentionShape& s) {
  return {s.batch,      s.query_heads, s.kv_heads, s.query_length, s.key_length, s.head_dim,
          s.query_offset, s.key_offset,  s.scale,    s.causal,       s.softcap};
}

struct Tensors {
  TestTensor q, k, v, d_out, out, lse, d_q, d_k, d_v, first_key;
  explicit Tensors(const AttentionShape& s, const reference::Intervals& intervals = {})
      : q(s.dtype, {s.batch, s.query_heads, s.query_length, s.head_dim}),
        k(s.dtype, {s.batch, s.kv_heads, s.key_length, s.head_dim}),
        v(s.dtype, k.view().shape()),
        d_out(s.dtype, q.view().shape()),
        out(s.dtype, q.view().shape()),
        lse(DType::kF32, {s.batch, s.query_heads, s.query_length}),
        d_q(s.dtype, q.view().shape()),
        d_k(s.dtype, k.view().shape()),
        d_v(s.dtype, k.view().shape()),
        first_key(DType::kI32, s.interval > 0 ? Shape{s.batch, s.query_length} : Shape{0}) {
    if (s.interval > 0)
      std::ranges::copy(reference::first_keys(reference_shape(s), intervals), first_key.view().as<std::int32_t>());
    q.randomize("q", 2), k.randomize("k", 2), v.randomize("v"), d_out.randomize("d_out");
    for (TestTensor* t : {&out, &lse, &d_q, &d_k, &d_v}) t->fill(kNaN);
  }
};

// |got - want| <= tolerance * (largest |want|, or `terms`, the size of what may cancel), elementwise.
inline void expect_close(const char* what, const TestTensor& got, const std::vector<double>& want, double tolerance,
                         double terms = 1e-3) {
  double largest = terms;
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

inline void expect_attention(const AttentionShape& s, const Tensors& t, double f32_tolerance = 4e-6) {
  reference::Attention r = reference_shape(s);
  const auto* const first = t.first_key.view().as<std::int32_t>();
  r.first_key.assign(first, first + t.first_key.view().num_elements());
  std::vector<double> out(static_cast<std::size_t>(t.q.view().num_elements())), d_q(out.size());
  std::vector<double> lse(static_cast<std::size_t>(t.lse.view().num_elements()));
  std::vector<double> d_k(static_cast<std::size_t>(t.k.view().num_elements())), d_v(d_k.size());
  const std::vector<double> q = t.q.values(), k = t.k.values(), v = t.v.values(), d_out = t.d_out.values();
  reference::attention_forward(r, out.data(), lse.data(), q.data(), k.data(), v.data());
  reference::attention_backward(r, d_q.data(), d_k.data(), d_v.data(), d_out.data(), out.data(), q.data(), k.data(), v.data(),
                                lse.data());
  // p, d_score and results are rounded to 8 bits (bf16) or 11 (f16).
  const double tolerance = s.dtype == DType::kF32 ? f32_tolerance : s.dtype == DType::kBF16 ? 2e-2 : 2e-2 / 8;
  expect_close("out", t.out, out, tolerance);
  expect_close("lse", t.lse, lse, f32_tolerance);
  const double terms = 0.3;  // where a query sees one key, d_score is a difference of equals
  expect_close("d_q", t.d_q, d_q, tolerance, terms);
  expect_close("d_k", t.d_k, d_k, tolerance, terms);
  expect_close("d_v", t.d_v, d_v, tolerance);
}

}  // namespace trident::testing
