// Cases of matrix products, attention and what stands around it.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "device/operations.h"
#include "device/ops.h"
#include "tests/conformance/builders.h"
#include "tests/support/reference_attention.h"
#include "tests/support/reference_ops.h"

namespace trident::conformance {

namespace {

using Views = std::span<const TensorView>;

std::string with_option(std::string variant, bool given, std::string_view option) {
  return given ? variant + "_" + std::string(option) : variant;
}

reference::Attention reference_shape(const AttentionShape& s) {
  return {s.batch,        s.query_heads, s.kv_heads,      s.query_length, s.key_length,     s.head_dim,
          s.query_offset, s.key_offset,  double{s.scale}, s.causal,       double{s.softcap}};
}

reference::Attention reference_shape(const AttentionShape& s, const reference::Intervals& intervals) {
  reference::Attention r = reference_shape(s);
  if (s.interval > 0) r.first_key = reference::first_keys(r, intervals);
  return r;
}

Operand first_key_operand(const AttentionShape& s) {
  return input("first_key", DType::kI32, {s.batch, s.query_length}, integers(0, 0));
}

// Counts one product [Sq,D] x [D,Sk] per head, as far as the mask leaves it.
double product_flops(const AttentionShape& s) {
  double pairs = static_cast<double>(s.query_length * s.key_length);
  if (s.causal) {
    const reference::Attention r = reference_shape(s);
    const Index most = s.interval > 0 ? s.interval : r.key_length;
    pairs = 0;
    for (Index i = 0; i < s.query_length; ++i)
      pairs += static_cast<double>(std::clamp<Index>(s.query_offset + i + 1 - s.key_offset, 0, std::min(r.key_length, most)));
  }
  return 2.0 * static_cast<double>(s.batch * s.query_heads * s.head_dim) * pairs;
}

// Probabilities and their gradients are rounded to `t` before they are multiplied, so errors are of the size of the
// terms: of p, d_s, the given out and d_out, and of the result.
Tolerance attention_tolerance(DType t) {
  Tolerance tolerance = rounded(t, kSumNoise);
  tolerance.relative = kSumNoise;
  tolerance.floor += 5 * unit_roundoff(t);
  return tolerance;
}

OpCase attention_case(std::string op, const AttentionShape& s, const reference::Intervals& intervals) {
  OpCase c;
  c.op = std::move(op);
  c.dtype = s.dtype;
  c.variant = fmt::format("b{}_n{}_k{}_q{}_s{}_d{}", s.batch, s.query_heads, s.kv_heads, s.query_length, s.key_length, s.head_dim);
  if (s.query_offset != 0 || s.key_offset != 0) c.variant += fmt::format("_at{}_{}", s.query_offset, s.key_offset);
  c.variant = with_option(c.variant, !s.causal, "full");
  if (s.interval > 0) c.variant += fmt::format("_documents{}_window{}", intervals.starts.size(), intervals.window);
  c.variant = with_option(c.variant, s.softcap > 0, "bounded");
  c.prepare = [s](Ops& ops) { return ops.attention_workspace(s); };
  return c;
}

}  // namespace

OpCase matmul(const MatmulShape& s, Draw draw) {
  const bool ta = s.transpose_a == Transpose::kYes, tb = s.transpose_b == Transpose::kYes, add = s.accumulate == Accumulate::kYes;
  // Integer operands: every order of summation gives the same, exact sum.
  Tolerance tolerance = draw.kind == Draw::Kind::kIntegers ? kExact : rounded(s.out, kSumNoise);
  // Else a share of the sum of the terms' magnitudes, 2 / pi on average where both factors are normal.
  if (!tolerance.is_exact() && s.out == DType::kF32)
    tolerance = {.relative = kProductNoise, .floor = kProductNoise, .terms = 0.6366 * static_cast<double>(s.k)};
  OpCase c;
  c.op = "matmul";
  c.dtype = s.in;
  c.variant =
      with_option(fmt::format("{}x{}x{}_{}{}_{}", s.m, s.n, s.k, ta ? "t" : "n", tb ? "t" : "n", to_string(s.out)), add, "add");
  c.variant = with_option(c.variant, draw.kind == Draw::Kind::kIntegers, "integers");
  c.operands = {result("out", s.out, {s.m, s.n}, s.accumulate, tolerance, draw),
                input("a", s.in, ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, draw),
                input("b", s.in, tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, draw)};
  c.flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  c.prepare = [s](Ops& ops) { return ops.prepare_matmul(s); };
  c.run = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.run(stream, op::Matmul{{v[0], v[1], s.transpose_a, v[2], s.transpose_b, s.accumulate, workspace}});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::matmul(v[0].data(), v[1].data(), ta, v[2].data(), tb, s.m, s.n, s.k, add);
  };
  return c;
}

AttentionShape attention_shape(DType t, Index B, Index N, Index K, Index Sq, Index Sk, Index D) {
  AttentionShape s;
  s.batch = B, s.query_heads = N, s.kv_heads = K, s.query_length = Sq, s.key_length = Sk, s.head_dim = D, s.dtype = t;
  s.scale = 1.0f / std::sqrt(static_cast<float>(D));
  return s;
}

OpCase attention_forward(const AttentionShape& s, const reference::Intervals& intervals) {
  OpCase c = attention_case("attention_forward", s, intervals);
  const Shape queries{s.batch, s.query_heads, s.query_length, s.head_dim}, keys{s.batch, s.kv_heads, s.key_length, s.head_dim};
  Tolerance statistics = rounded(DType::kF32, kSumNoise), outputs = attention_tolerance(s.dtype);
  outputs.zeros = Zeros::kExact;  // a query that sees no key
  c.operands = {output("out", s.dtype, queries, outputs),
                output("lse", DType::kF32, {s.batch, s.query_heads, s.query_length}, statistics), input("q", s.dtype, queries),
                input("k", s.dtype, keys), input("v", s.dtype, keys)};
  c.flops = 2 * product_flops(s);
  c.run = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.run(stream, op::AttentionForward{s, v[0], v[1], v[2], v[3], v[4], workspace, v.size() > 5 ? v[5] : TensorView()});
  };
  const reference::Attention r = reference_shape(s, intervals);
  c.reference = [r](std::vector<Values>& v) {
    reference::attention_forward(r, v[0].data(), v[1].data(), v[2].data(), v[3].data(), v[4].data());
  };
  if (s.interval == 0) return c;
  c.operands.push_back(first_key_operand(s));
  c.derive = [r](std::vector<Values>& v) { v[5].assign(r.first_key.begin(), r.first_key.end()); };
  return c;
}

OpCase cached_attention(const AttentionShape& s, std::vector<std::int64_t> first, const reference::Intervals& intervals) {
  OpCase c = attention_forward(s, intervals);
  c.op = "cached_attention";
  c.flops = 0;
  for (std::size_t b = 0; b < std::min<std::size_t>(first.size(), 4); ++b) c.variant += fmt::format("_from{}", first[b]);
  const auto of_sample = [s, first](std::size_t b) {
    AttentionShape one = s;
    one.batch = 1, one.query_offset = first[b];
    return one;
  };
  for (std::size_t b = 0; b < first.size(); ++b) c.flops += 2 * product_flops(of_sample(b));
  c.prepare = [s](Ops& ops) { return ops.cached_attention_workspace(s); };
  c.run = [s, first](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.run(stream, op::CachedAttention{s, first, v[0], v[1], v[2], v[3], v[4], workspace, v.size() > 5 ? v[5] : TensorView()});
  };
  c.reference = [=](std::vector<Values>& v) {
    const Index rows = s.query_heads * s.query_length, keys = s.kv_heads * s.key_length * s.head_dim;
    for (std::size_t b = 0; b < first.size(); ++b) {
      const Index at = static_cast<Index>(b) * rows, at_q = at * s.head_dim, at_k = static_cast<Index>(b) * keys;
      reference::attention_forward(reference_shape(of_sample(b), intervals), v[0].data() + at_q, v[1].data() + at,
                                   v[2].data() + at_q, v[3].data() + at_k, v[4].data() + at_k);
    }
  };
  if (s.interval == 0) return c;
  c.derive = [=](std::vector<Values>& v) {
    v[5].clear();
    for (std::size_t b = 0; b < first.size(); ++b)
      for (const std::int32_t key : reference_shape(of_sample(b), intervals).first_key) v[5].push_back(key);
  };
  return c;
}

OpCase attention_backward(const AttentionShape& s, const reference::Intervals& intervals) {
  OpCase c = attention_case("attention_backward", s, intervals);
  const reference::Attention r = reference_shape(s, intervals);
  const Shape queries{s.batch, s.query_heads, s.query_length, s.head_dim}, keys{s.batch, s.kv_heads, s.key_length, s.head_dim};
  Tolerance tolerance = attention_tolerance(s.dtype);
  tolerance.terms = 1;  // where a query sees one key, d_score is a difference of equals
  c.operands = {output("d_q", s.dtype, queries, tolerance),
                output("d_k", s.dtype, keys, tolerance),
                output("d_v", s.dtype, keys, tolerance),
                input("d_out", s.dtype, queries),
                input("out", s.dtype, queries),
                input("q", s.dtype, queries),
                input("k", s.dtype, keys),
                input("v", s.dtype, keys),
                input("lse", DType::kF32, {s.batch, s.query_heads, s.query_length})};
  if (s.interval > 0) c.operands.push_back(first_key_operand(s));
  c.flops = 5 * product_flops(s);
  c.derive = [r](std::vector<Values>& v) {
    if (v.size() > 9) v[9].assign(r.first_key.begin(), r.first_key.end());
    reference::attention_forward(r, v[4].data(), v[8].data(), v[5].data(), v[6].data(), v[7].data());
  };
  c.run = [s](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    ops.run(stream, op::AttentionBackward{s, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], workspace,
                                          v.size() > 9 ? v[9] : TensorView()});
  };
  c.reference = [r](std::vector<Values>& v) {
    reference::attention_backward(r, v[0].data(), v[1].data(), v[2].data(), v[3].data(), v[4].data(), v[5].data(), v[6].data(),
                                  v[7].data(), v[8].data());
  };
  return c;
}

// ---- heads

OpCase split_heads(DType t, HeadShape h, Index columns, Index first_column) {
  OpCase c;
  c.op = "split_heads";
  c.dtype = t;
  c.variant = fmt::format("b{}_n{}_s{}_d{}_columns{}_from{}", h.B, h.n, h.S, h.D, columns, first_column);
  c.operands = {output("heads", t, {h.B, h.n, h.S, h.D}, kExact), input("rows", t, {h.S, h.B, columns})};
  c.bytes = 2.0 * static_cast<double>(h.B * h.n * h.S * h.D * size_of(t));
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::SplitHeads{v[0], v[1], first_column}); };
  c.reference = [=](std::vector<Values>& v) {
    reference::split_heads(v[0].data(), v[1].data(), h.B, h.n, h.S, h.D, columns, first_column);
  };
  return c;
}

OpCase merge_heads(DType t, HeadShape h, Index columns, Index first_column) {
  OpCase c = split_heads(t, h, columns, first_column);
  c.op = "merge_heads";
  c.operands = {in_place("rows", t, {h.S, h.B, columns}, kExact), input("heads", t, {h.B, h.n, h.S, h.D})};
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::MergeHeads{v[0], v[1], first_column}); };
  c.reference = [=](std::vector<Values>& v) {
    reference::merge_heads(v[0].data(), v[1].data(), h.B, h.n, h.S, h.D, columns, first_column);
  };
  return c;
}

namespace {

Index positions_of(HeadShape h) { return 2 * h.S + 3; }

// Behind the operands that there are: cos, sin, position.
void add_rotation(OpCase& c, HeadShape h, Index pairs) {
  const std::size_t first = c.operands.size();
  c.operands.push_back(input("cos", DType::kF32, {positions_of(h), pairs}));
  c.operands.push_back(input("sin", DType::kF32, {positions_of(h), pairs}));
  c.operands.push_back(input("position", DType::kI32, {h.B, h.S}, integers(0, positions_of(h) - 1)));
  c.derive = [=](std::vector<Values>& v) {
    for (std::size_t i = 0; i < v[first].size(); ++i) {
      const double angle = v[first][i];
      v[first][i] = std::cos(angle), v[first + 1][i] = std::sin(angle);
    }
  };
}

void turn(Values& heads, std::span<const Values> rotation, HeadShape h, Index pairs, double direction) {
  const std::vector<std::int32_t> position(rotation[2].begin(), rotation[2].end());
  reference::rope(heads.data(), rotation[0].data(), rotation[1].data(), position.data(), h.B, h.n, h.S, h.D, pairs, direction);
}

}  // namespace

OpCase split_rotated_heads(DType t, HeadShape h, Index columns, Index first_column, Index pairs) {
  OpCase c = split_heads(t, h, columns, first_column);
  c.variant += fmt::format("_pairs{}", pairs);
  c.operands[0].tolerance = rounded(t, 1e-6);
  add_rotation(c, h, pairs);
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::SplitHeads{v[0], v[1], first_column, {v[2], v[3], v[4]}});
  };
  c.reference = [=](std::vector<Values>& v) {
    reference::split_heads(v[0].data(), v[1].data(), h.B, h.n, h.S, h.D, columns, first_column);
    turn(v[0], std::span(v).subspan(2), h, pairs, 1);
  };
  return c;
}

OpCase merge_rotated_heads(DType t, HeadShape h, Index columns, Index first_column, Index pairs) {
  OpCase c = merge_heads(t, h, columns, first_column);
  c.variant += fmt::format("_pairs{}", pairs);
  c.operands[0].tolerance = rounded(t, 1e-6);
  add_rotation(c, h, pairs);
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) {
    ops.run(stream, op::MergeHeads{v[0], v[1], first_column, {v[2], v[3], v[4]}});
  };
  c.reference = [=](std::vector<Values>& v) {
    turn(v[1], std::span(v).subspan(2), h, pairs, -1);
    reference::merge_heads(v[0].data(), v[1].data(), h.B, h.n, h.S, h.D, columns, first_column);
  };
  return c;
}

OpCase rope(DType t, HeadShape h, Index pairs, Transpose inverse) {
  OpCase c;
  c.op = "rope";
  c.dtype = t;
  c.variant = with_option(fmt::format("b{}_n{}_s{}_d{}_pairs{}", h.B, h.n, h.S, h.D, pairs), inverse == Transpose::kYes, "back");
  c.operands = {in_place("x", t, {h.B, h.n, h.S, h.D}, rounded(t, 1e-6))};
  add_rotation(c, h, pairs);
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView) { ops.run(stream, op::Rope{v[0], {v[1], v[2], v[3]}, inverse}); };
  c.reference = [=](std::vector<Values>& v) {
    turn(v[0], std::span(v).subspan(1), h, pairs, inverse == Transpose::kYes ? -1 : 1);
  };
  return c;
}

}  // namespace trident::conformance
