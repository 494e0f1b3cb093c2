// Matrix products and attention as plain loops: the rest of tests/support/reference_ops.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace trident::reference {

// out[M,N] (+)= op(a) op(b): op(a) [M,K], op(b) [K,N]; `add` keeps what is in out.
template <class R>
void matmul(R* out, const R* a, bool transpose_a, const R* b, bool transpose_b, std::int64_t M, std::int64_t N, std::int64_t K,
            bool add) {
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t j = 0; j < N; ++j) {
      R sum = add ? out[i * N + j] : R(0);
      for (std::int64_t k = 0; k < K; ++k)
        sum += (transpose_a ? a[k * M + i] : a[i * K + k]) * (transpose_b ? b[j * K + k] : b[k * N + j]);
      out[i * N + j] = sum;
    }
}

// As AttentionShape in device/ops.h.
struct Attention {
  std::int64_t batch = 1, query_heads = 1, kv_heads = 1, query_length = 1, key_length = 1, head_dim = 1;
  std::int64_t query_offset = 0, key_offset = 0;
  double scale = 1.0;
  bool causal = true;
  double softcap = 0.0;
  std::vector<std::int32_t> first_key = {};  // [B,Sq] or nothing

  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const bool from_here = first_key.empty() || key_offset + j >= first_key[static_cast<std::size_t>(b * query_length + i)];
    return from_here && (!causal || key_offset + j <= query_offset + i);
  }
  // Offsets of a row of q (and out, d_out), of k (and v), and of an element of lse.
  std::int64_t query_row(std::int64_t b, std::int64_t n, std::int64_t i) const {
    return ((b * query_heads + n) * query_length + i) * head_dim;
  }
  std::int64_t key_row(std::int64_t b, std::int64_t n, std::int64_t j) const {
    return ((b * kv_heads + n / (query_heads / kv_heads)) * key_length + j) * head_dim;
  }
};

// Documents that begin at the positions `starts`, which ascend and, but for 0, lie 3 b later in sample b; a window of keys, or 0.
struct Intervals {
  std::vector<std::int64_t> starts = {};
  std::int64_t window = 0;
};

// The first keys [B,Sq] that queries of `shape` see.
inline std::vector<std::int32_t> first_keys(const Attention& shape, const Intervals& intervals) {
  std::vector<std::int32_t> first;
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t i = 0; i < shape.query_length; ++i) {
      const std::int64_t position = shape.query_offset + i;
      std::int64_t at = intervals.window > 0 ? std::max<std::int64_t>(0, position + 1 - intervals.window) : 0;
      for (const std::int64_t start : intervals.starts) {
        const std::int64_t shifted = start == 0 ? 0 : start + 3 * b;
        if (shifted <= position) at = std::max(at, shifted);
      }
      first.push_back(static_cast<std::int32_t>(at));
    }
  return first;
}

// Calls f(b, n, i) for every query of every head.
template <class F>
void for_each_query(const Attention& shape, F&& f) {
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t n = 0; n < shape.query_heads; ++n)
      for (std::int64_t i = 0; i < shape.query_length; ++i) f(b, n, i);
}

template <class R>
R dot(const R* a, const R* b, std::int64_t count) {
  R sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += a[d] * b[d];
  return sum;
}

// out [B,N,Sq,D], lse [B,N,Sq]; q [B,N,Sq,D]; k, v [B,K,Sk,D]. A query that sees no key: out 0, lse -infinity.
template <class R>
void attention_forward(const Attention& shape, R* out, R* lse, const R* q, const R* k, const R* v) {
  const std::int64_t D = shape.head_dim;
  for_each_query(shape, [&](std::int64_t b, std::int64_t n, std::int64_t i) {
    const std::int64_t row = shape.query_row(b, n, i);
    std::vector<R> scores(static_cast<std::size_t>(shape.key_length), -std::numeric_limits<R>::infinity());
    R largest = -std::numeric_limits<R>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < shape.key_length; ++j) {
      if (!shape.sees(b, i, j)) continue;
      R& score = scores[static_cast<std::size_t>(j)];
      score = R(shape.scale) * dot(q + row, k + shape.key_row(b, n, j), D);
      if (shape.softcap > 0) score = R(shape.softcap) * std::tanh(score / R(shape.softcap));
      if (score > largest) largest = score;
    }
    for (std::int64_t d = 0; d < D; ++d) out[row + d] = 0;
    for (std::int64_t j = 0; j < shape.key_length; ++j)
      if (shape.sees(b, i, j)) sum += std::exp(scores[static_cast<std::size_t>(j)] - largest);
    lse[row / D] = sum > 0 ? largest + std::log(sum) : -std::numeric_limits<R>::infinity();
    for (std::int64_t j = 0; j < shape.key_length; ++j) {
      if (!shape.sees(b, i, j)) continue;
      const R p = std::exp(scores[static_cast<std::size_t>(j)] - lse[row / D]);
      for (std::int64_t d = 0; d < D; ++d) out[row + d] += p * v[shape.key_row(b, n, j) + d];
    }
  });
}

// With p = exp(score - lse): dv += p d_out; d_score = p (d_out . v - d_out . out), times 1 - (score / softcap)^2 with a bound;
// d_q += scale d_score k; d_k += scale d_score q.
template <class R>
void attention_backward(const Attention& shape, R* d_q, R* d_k, R* d_v, const R* d_out, const R* out, const R* q, const R* k,
                        const R* v, const R* lse) {
  const std::int64_t D = shape.head_dim;
  std::fill_n(d_q, shape.batch * shape.query_heads * shape.query_length * D, R(0));
  std::fill_n(d_k, shape.batch * shape.kv_heads * shape.key_length * D, R(0));
  std::fill_n(d_v, shape.batch * shape.kv_heads * shape.key_length * D, R(0));
  for_each_query(shape, [&](std::int64_t b, std::int64_t n, std::int64_t i) {
    const std::int64_t row = shape.query_row(b, n, i);
    const R delta = dot(d_out + row, out + row, D);
    for (std::int64_t j = 0; j < shape.key_length; ++j) {
      if (!shape.sees(b, i, j)) continue;
      const std::int64_t key = shape.key_row(b, n, j);
      const R raw = R(shape.scale) * dot(q + row, k + key, D);
      const R part = shape.softcap > 0 ? std::tanh(raw / R(shape.softcap)) : R(0);
      const R p = std::exp((shape.softcap > 0 ? R(shape.softcap) * part : raw) - lse[row / D]);
      const R d_score = p * (dot(d_out + row, v + key, D) - delta) * R(shape.scale) * (1 - part * part);
      for (std::int64_t d = 0; d < D; ++d) {
        d_v[key + d] += p * d_out[row + d];
        d_q[row + d] += d_score * k[key + d];
        d_k[key + d] += d_score * q[row + d];
      }
    }
  });
}

}  // namespace trident::reference
