#include "tests/conformance/case_table.h"

#include <algorithm>
#include <cstdint>

#include "tests/conformance/builders.h"

namespace trident::conformance {

namespace {

using Cases = std::vector<OpCase>;

constexpr Draw kSmallIntegers{Draw::Kind::kIntegers, -3, 3};
constexpr Transpose kN = Transpose::kNo, kT = Transpose::kYes;
constexpr Accumulate kSet = Accumulate::kNo, kAdd = Accumulate::kYes;

struct Extents {
  Index m, n, k;
};
struct RowSize {
  Index R, H;
  bool every_way = true;
};

// Five rows of lengths around every vector width, none and one of some, and one longer than what a kernel works on at once.
std::vector<RowSize> row_sizes(Index shortest) {
  std::vector<RowSize> sizes{{1, 8200, false}};
  for (const Index H : {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100, 129, 264, 1030}) {
    if (H < shortest) continue;
    sizes.push_back({5, H});
    if (H == 8 || H == 33 || H == 264) sizes.insert(sizes.end(), {{0, H}, {1, H}});
  }
  return sizes;
}

OpCase large(OpCase c) {
  c.variant = "large_" + c.variant;
  return c;
}

void add_products(Cases& cases, DType in) {
  std::vector<DType> outs = {DType::kF32};
  if (in != DType::kF32) outs.push_back(in);
  for (const DType out : outs) {
    for (const Transpose ta : {kN, kT})
      for (const Transpose tb : {kN, kT})
        for (const Accumulate sum : {kSet, kAdd}) {
          for (const Extents e :
               {Extents{1, 1, 1}, {7, 1, 33}, {3, 5, 1}, {16, 32, 8}, {33, 65, 129}, {0, 4, 3}, {4, 0, 3}, {4, 3, 0}})
            cases.push_back(matmul({e.m, e.n, e.k, ta, tb, in, out, sum}, kSmallIntegers));
          cases.push_back(matmul({24, 40, 200, ta, tb, in, out, sum}, normal()));
        }
    cases.push_back(shifted(matmul({13, 21, 17, kN, kT, in, out, kSet}, kSmallIntegers)));
    cases.push_back(large(matmul({130, 257, 300, kN, kT, in, out, kSet}, normal())));  // y = x W^T
    cases.push_back(large(matmul({130, 257, 300, kN, kN, in, out, kSet}, normal())));  // d_x = d_y W
  }
  cases.push_back(large(matmul({96, 130, 520, kT, kN, in, DType::kF32, kAdd}, normal())));  // d_W += d_y^T x
}

// Rows of 8 elements and not, so that a library takes some and leaves others.
void add_fused_products(Cases& cases, DType t) {
  const auto forward = [t](Index m, Index n, Index k) { return MatmulShape{m, n, k, kN, kT, t, t, kSet}; };    // y = x W^T
  const auto backward = [t](Index m, Index n, Index k) { return MatmulShape{m, n, k, kN, kN, t, t, kSet}; };   // d_x = d_y W
  for (const Extents e : {Extents{1, 8, 1}, {5, 7, 9}, {33, 64, 40}, {24, 130, 17}, {0, 8, 3}, {4, 8, 0}, {4, 0, 3}}) {
    cases.push_back(matmul_bias(forward(e.m, e.n, e.k), normal()));
    cases.push_back(matmul_summands(forward(e.m, e.n, e.k), true, 0, kSmallIntegers));
    cases.push_back(matmul_summands(forward(e.m, e.n, e.k), true, 6, normal()));
    cases.push_back(matmul_summands(backward(e.m, e.n, e.k), false, 5, kSmallIntegers));  // an odd rank
    cases.push_back(matmul_summands(backward(e.m, e.n, e.k), false, 16, normal()));
    cases.push_back(matmul_bias_gelu(forward(e.m, e.n, e.k)));
    cases.push_back(matmul_gelu_backward(backward(e.m, e.n, e.k)));
    for (const Accumulate sum : {kSet, kAdd}) {
      cases.push_back(matmul_bias_gradient(t, e.m, e.n, e.k, sum, kSmallIntegers));
      cases.push_back(matmul_bias_gradient(t, e.m, e.n, e.k, sum, normal()));
    }
  }
  cases.push_back(matmul_bias(forward(19, 24, 16), kSmallIntegers));
  cases.push_back(shifted(matmul_bias(forward(13, 24, 16), normal())));
  cases.push_back(shifted(matmul_summands(forward(13, 24, 16), true, 4, normal())));
  cases.push_back(large(matmul_summands(forward(130, 256, 300), true, 48, normal())));
  cases.push_back(large(matmul_summands(backward(30, 2100, 1100), true, 16, normal())));  // several cuts of the sum, and of columns
  cases.push_back(shifted(matmul_bias_gelu(forward(13, 24, 16))));
  cases.push_back(shifted(matmul_gelu_backward(backward(13, 24, 16))));
  for (const Accumulate sum : {kSet, kAdd}) cases.push_back(shifted(matmul_bias_gradient(t, 13, 24, 16, sum, normal())));
  cases.push_back(large(matmul_bias(forward(130, 256, 300), normal())));
  cases.push_back(large(matmul_bias_gelu(forward(130, 256, 300))));
  cases.push_back(large(matmul_gelu_backward(backward(130, 256, 300))));
  cases.push_back(large(matmul_bias_gradient(t, 96, 130, 520, kAdd, normal())));
}

void add_attention(Cases& cases, DType t) {
  const auto both = [&](AttentionShape s, auto wrap) {
    cases.push_back(wrap(attention_forward(s)));
    cases.push_back(wrap(attention_backward(s)));
  };
  const auto plain = [&](const AttentionShape& s) { both(s, [](OpCase c) { return c; }); };
  const auto at = [](AttentionShape s, Index query_offset, Index key_offset) {
    s.query_offset = query_offset, s.key_offset = key_offset;
    return s;
  };
  const auto full = [](AttentionShape s) {
    s.causal = false;
    return s;
  };
  plain(attention_shape(t, 2, 4, 2, 37, 37, 16));  // grouped
  plain(full(attention_shape(t, 2, 4, 2, 37, 37, 16)));
  plain(attention_shape(t, 1, 3, 3, 64, 64, 64));   // a head of its own for each
  plain(attention_shape(t, 1, 4, 1, 16, 16, 128));  // one for all
  plain(attention_shape(t, 1, 2, 1, 1, 1, 8));
  plain(attention_shape(t, 1, 2, 1, 5, 9, 20));                     // a head width that is no multiple of 8; keys that nobody sees
  plain(at(attention_shape(t, 1, 2, 2, 5, 40, 24), 35, 0));         // the last queries
  plain(at(attention_shape(t, 1, 2, 1, 40, 20, 8), 30, 40));        // the first ten queries see nothing
  plain(at(attention_shape(t, 1, 1, 1, 10, 10, 8), 0, 100));        // nobody sees anything
  plain(full(at(attention_shape(t, 1, 1, 1, 10, 10, 8), 0, 100)));  // offsets mean nothing without the mask
  plain(attention_shape(t, 0, 2, 1, 3, 3, 8));
  plain(attention_shape(t, 1, 2, 1, 0, 3, 8));
  plain(full(attention_shape(t, 1, 2, 1, 3, 0, 8)));
  // One query for each of several lengths, and pieces of prompts: the last rows lie behind what the cache holds.
  cases.push_back(cached_attention(attention_shape(t, 3, 4, 2, 1, 40, 16), {0, 39, 17}));
  cases.push_back(cached_attention(attention_shape(t, 1, 3, 3, 8, 20, 24), {0}));
  cases.push_back(cached_attention(attention_shape(t, 2, 4, 1, 8, 20, 20), {9, 15}));
  // Tiles of keys, and more columns than a block has threads.
  cases.push_back(cached_attention(attention_shape(t, 2, 2, 1, 1, 290, 136), {289, 127}));
  cases.push_back(cached_attention(attention_shape(t, 0, 2, 1, 1, 3, 8), {}));
  cases.push_back(cached_attention(attention_shape(t, 1, 2, 1, 0, 3, 8), {1}));
  std::vector<std::int64_t> lengths;  // of more samples than a launch has room for
  for (Index b = 0; b < 70; ++b) lengths.push_back(b % 5);
  cases.push_back(cached_attention(attention_shape(t, 70, 2, 1, 1, 5, 8), lengths));
  cases.push_back(shifted(cached_attention(attention_shape(t, 2, 2, 1, 3, 19, 8), {4, 16})));
  both(attention_shape(t, 1, 2, 1, 19, 19, 8), [](OpCase c) { return shifted(std::move(c)); });
  both(attention_shape(t, 1, 2, 1, 300, 300, 64), [](OpCase c) { return large(std::move(c)); });
}

void add_attention_of_intervals(Cases& cases, DType t) {
  const auto of = [](AttentionShape s, const reference::Intervals& intervals, float softcap = 0) {
    s.interval = intervals.window > 0 ? intervals.window : std::max<Index>(s.key_length, 1);
    s.softcap = softcap;
    return s;
  };
  const auto both = [&](AttentionShape s, const reference::Intervals& intervals, float softcap = 0) {
    cases.push_back(attention_forward(of(s, intervals, softcap), intervals));
    cases.push_back(attention_backward(of(s, intervals, softcap), intervals));
  };
  const auto cached = [&](AttentionShape s, std::vector<std::int64_t> first, const reference::Intervals& intervals, float cap = 0) {
    cases.push_back(cached_attention(of(s, intervals, cap), std::move(first), intervals));
  };
  const auto at = [](AttentionShape s, Index query_offset, Index key_offset) {
    s.query_offset = query_offset, s.key_offset = key_offset;
    return s;
  };
  reference::Intervals sixteen;
  for (Index i = 0; i < 16; ++i) sixteen.starts.push_back(6 * i);
  both(attention_shape(t, 2, 4, 2, 37, 37, 16), {{0}});
  both(attention_shape(t, 1, 2, 1, 96, 96, 16), sixteen);
  both(attention_shape(t, 2, 4, 2, 37, 37, 16), {{0, 1, 2, 9, 33, 36}});  // of one key, and from the first and the last one on
  for (const Index window : {1, 2, 31, 32, 33, 100}) both(attention_shape(t, 1, 2, 1, 70, 70, 20), {{}, window});
  both(attention_shape(t, 2, 3, 3, 70, 70, 8), {{0, 20, 41}, 8});
  both(at(attention_shape(t, 1, 2, 2, 5, 40, 24), 35, 0), {{0, 37}, 30});
  both(at(attention_shape(t, 1, 2, 1, 40, 20, 8), 30, 40), {{0, 45, 62}});  // the last queries' document lies behind the keys
  both(attention_shape(t, 1, 2, 1, 0, 3, 8), {{0}});
  both(attention_shape(t, 1, 2, 1, 37, 37, 16), {{0, 20}}, 0.5f);
  if (t != DType::kF32) both(attention_shape(t, 1, 2, 1, 70, 70, 20), {{0, 20}, 33}, 0.5f);  // no multiple of 8
  for (const bool causal : {true, false}) {
    AttentionShape bounded = attention_shape(t, 2, 4, 2, 37, 37, 16);
    bounded.causal = causal, bounded.softcap = 0.5f;
    cases.push_back(attention_forward(bounded));
    cases.push_back(attention_backward(bounded));
  }
  cached(attention_shape(t, 3, 4, 2, 1, 40, 16), {0, 39, 17}, {{}, 8});
  cached(attention_shape(t, 2, 4, 1, 8, 20, 20), {9, 15}, {{0, 12}, 5});
  cached(attention_shape(t, 2, 2, 1, 1, 290, 136), {289, 127}, {{}, 200}, 0.5f);
  cached(attention_shape(t, 2, 2, 1, 3, 30, 8), {27, 4}, {{0, 29}});
  cached(attention_shape(t, 70, 2, 1, 1, 5, 8), std::vector<std::int64_t>(70, 4), {{0, 1, 2, 3, 4}});
  const reference::Intervals off_the_tiles{{0, 5, 127, 128, 129, 250, 256}, 129};
  const AttentionShape wide = of(attention_shape(t, 1, 2, 1, 300, 300, 64), off_the_tiles);
  cases.push_back(large(attention_forward(wide, off_the_tiles)));
  cases.push_back(large(attention_backward(wide, off_the_tiles)));
}

void add_heads(Cases& cases, DType t) {
  for (const HeadShape h :
       {HeadShape{2, 3, 5, 8}, {1, 2, 7, 5}, {3, 1, 1, 1}, {2, 3, 0, 8}, {0, 3, 4, 8}, {2, 4, 33, 64}, {1, 1, 2, 2200}}) {
    const Index width = h.n * h.D;
    for (const Index first : {Index{0}, width, std::min<Index>(3, 2 * width)}) {  // q, k of [q | k | v], and somewhere
      cases.push_back(split_heads(t, h, 3 * width, first));
      cases.push_back(merge_heads(t, h, 3 * width, first));
    }
    if (h.D > 1)
      for (const Index pairs : {h.D / 2, h.D / 4}) {
        cases.push_back(split_rotated_heads(t, h, 3 * width, width, pairs));
        cases.push_back(merge_rotated_heads(t, h, 3 * width, width, pairs));
      }
    for (const Transpose back : {kN, kT}) {
      if (h.D == 1) continue;
      cases.push_back(rope(t, h, h.D / 2, back));
      if (h.D >= 8) cases.push_back(rope(t, h, h.D / 4, back));  // part of a head
    }
  }
  cases.push_back(shifted(split_heads(t, {2, 3, 5, 8}, 72, 24)));
  cases.push_back(shifted(merge_heads(t, {2, 3, 5, 8}, 72, 24)));
  cases.push_back(shifted(rope(t, {2, 3, 5, 8}, 4, kN)));
  cases.push_back(split_rotated_heads(t, {2, 3, 5, 16}, 150, 3, 8));
  cases.push_back(shifted(merge_rotated_heads(t, {2, 3, 5, 16}, 144, 48, 4)));
}

void add_norms(Cases& cases, DType t) {
  std::vector<RowSize> sizes = row_sizes(3);  // the norm of one element is a difference of equals
  // Rows in every number that kernels treat in ways of their own, and many rows, whose sums are taken in parts.
  sizes.insert(sizes.end(), {{3, 520, false}, {3, 2056, false}, {2, 4104, false}, {70, 64, false}, {70, 65, false},
                             {20, 521, false}});
  for (const auto& [R, H, every_way] : sizes) {
    cases.push_back(rms_norm_forward(t, R, H));
    for (const bool bias : {false, true}) {
      cases.push_back(residual_rms_norm(t, R, H, bias));
      cases.push_back(residual_layer_norm(t, R, H, bias));
    }
    cases.push_back(rms_norm_squares(t, R, H));
    cases.push_back(rms_norm_apply(t, R, H));
    cases.push_back(rms_norm_dots(t, R, H));
    cases.push_back(layer_norm_forward(t, R, H));
    for (const Gradient d_x : {Gradient::kOverwrite, Gradient::kAdd, Gradient::kInPlace})
      for (const Accumulate weight : {kSet, kAdd}) {
        if (!every_way && d_x != Gradient::kAdd) continue;
        cases.push_back(rms_norm_backward(t, R, H, d_x, weight));
        cases.push_back(rms_norm_apply_backward(t, R, H, d_x, weight));
        cases.push_back(layer_norm_backward(t, R, H, d_x, weight));
      }
  }
  cases.push_back(rms_norm_forward(t, 2, 1));
  cases.push_back(shifted(rms_norm_forward(t, 5, 40)));
  cases.push_back(shifted(layer_norm_forward(t, 5, 40)));
  cases.push_back(shifted(residual_rms_norm(t, 5, 40, false)));
  cases.push_back(shifted(residual_layer_norm(t, 5, 40, true)));
  cases.push_back(shifted(rms_norm_backward(t, 5, 40, Gradient::kAdd, kAdd)));
  cases.push_back(shifted(layer_norm_backward(t, 5, 40, Gradient::kAdd, kAdd)));
  cases.push_back(shifted(rms_norm_squares(t, 5, 40)));
  cases.push_back(shifted(rms_norm_apply(t, 5, 40)));
  cases.push_back(shifted(rms_norm_dots(t, 5, 40)));
  cases.push_back(shifted(rms_norm_apply_backward(t, 5, 40, Gradient::kAdd, kAdd)));
  cases.push_back(large(rms_norm_forward(t, 70, 4096)));
  cases.push_back(large(layer_norm_forward(t, 70, 1600)));
  cases.push_back(large(residual_rms_norm(t, 70, 4096, false)));
  cases.push_back(large(residual_layer_norm(t, 70, 1600, true)));
  cases.push_back(large(rms_norm_backward(t, 600, 264, Gradient::kOverwrite, kAdd)));
  cases.push_back(large(rms_norm_squares(t, 70, 4096)));
  cases.push_back(large(rms_norm_apply(t, 70, 4096)));
  cases.push_back(large(rms_norm_dots(t, 70, 4096)));
  cases.push_back(large(rms_norm_apply_backward(t, 600, 264, Gradient::kOverwrite, kAdd)));
  cases.push_back(large(layer_norm_backward(t, 600, 264, Gradient::kOverwrite, kAdd)));
}

std::vector<DType> converted_to(DType t) {
  if (t == DType::kF32) return {DType::kF32, DType::kBF16, DType::kF16};
  return {DType::kF32, t};
}

// Operands that are not aligned, or large.
void add_odd_elementwise(Cases& cases, DType t) {
  const Cases unaligned = {swiglu_forward(t, 5, 24),
                           swiglu_backward(t, 5, 24),
                           gelu_forward(t, 5, 24),
                           bias_gelu(t, 5, 24),
                           gelu_backward(t, 5, 24),
                           add_bias(t, 5, 24),
                           add_bias_residual(t, 5, 24),
                           sum_rows(t, 5, 24, kSet, kSmallIntegers),
                           sum_products(t, 5, 24),
                           scale_columns(t, 5, 24, kAdd),
                           add(t, 100, Alias::kNone),
                           fill_zero(t, 100),
                           clip_forward(t, 100, 0.5f, normal()),
                           clip_backward(t, 100, 0.5f, false, normal()),
                           update(UpdateRule::kAdamW, t, 100, 0.1f, Alias::kNone),
                           update(UpdateRule::kLion, t, 100, 0.1f, Alias::kNone),
                           dropout(t, 5, 3, 24, 0.5f, Alias::kNone)};
  for (const OpCase& c : unaligned) cases.push_back(shifted(c));
  if (t == DType::kBF16) {
    for (const UpdateRule f : kUpdateRules) {
      cases.push_back(shifted(update_at_random(f, 100, {{1, 2}, 0, 0, 50, 50})));
      cases.push_back(large(update_at_random(f, 40000, {{3, 4}, 64, 32, 96, 192})));
    }
  }
  for (const DType to : converted_to(t)) cases.push_back(shifted(convert(t, to, 100)));
  const Cases larger = {swiglu_forward(t, 130, 257),
                        swiglu_backward(t, 130, 257),
                        gelu_forward(t, 130, 257),
                        bias_gelu(t, 130, 257),
                        gelu_backward(t, 130, 257),
                        add_bias(t, 300, 130),
                        sum_rows(t, 1500, 130, kSet, normal()),
                        sum_products(t, 300, 130),
                        scale_columns(t, 300, 130, kSet),
                        add(t, 70000, Alias::kNone),
                        fill_zero(t, 70000),
                        clip_forward(t, 70000, 1.5f, normal()),
                        clip_backward(t, 70000, 1.5f, true, normal()),
                        update(UpdateRule::kAdamW, t, 40000, 0.1f, Alias::kNone),
                        update(UpdateRule::kLion, t, 40000, 0.1f, Alias::kNone),
                        dropout(t, 30, 4, 264, 0.3f, Alias::kNone)};
  for (const OpCase& c : larger) cases.push_back(large(c));
  for (const DType to : converted_to(t)) cases.push_back(large(convert(t, to, 70000)));
}

void add_elementwise(Cases& cases, DType t) {
  for (const auto& [R, C, every_way] : row_sizes(1)) {
    cases.push_back(swiglu_forward(t, R, C));
    cases.push_back(swiglu_backward(t, R, C));
    cases.push_back(gelu_forward(t, R, C));
    cases.push_back(bias_gelu(t, R, C));
    cases.push_back(gelu_backward(t, R, C));
    cases.push_back(add_bias(t, R, C));
    cases.push_back(add_bias_residual(t, R, C));
    for (const Accumulate sum : {kSet, kAdd}) {
      cases.push_back(sum_rows(t, R, C, sum, kSmallIntegers));
      cases.push_back(scale_columns(t, R, C, sum));
    }
    cases.push_back(sum_products(t, R, C));
  }
  for (const Index n : {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 129, 1030}) {
    for (const Alias alias : {Alias::kNone, Alias::kFirst, Alias::kSecond}) cases.push_back(add(t, n, alias));
    for (const DType to : converted_to(t)) cases.push_back(convert(t, to, n));
    cases.push_back(fill_zero(t, n));
    cases.push_back(clip_forward(t, n, 2));
    for (const bool aliased : {false, true}) cases.push_back(clip_backward(t, n, 2, aliased));
    for (const UpdateRule f : kUpdateRules) {
      for (const float decay : {0.0f, 0.1f}) cases.push_back(update(f, t, n, decay, Alias::kNone));
      if (t == DType::kF32) cases.push_back(update(f, t, n, 0.1f, Alias::kFirst));
      if (t != DType::kBF16) continue;
      for (const Index first : {0, 3, 12}) cases.push_back(update_at_random(f, n, {{1, 2}, first, 0, 50, 50}));
      for (const Index column : {8, 9})
        cases.push_back(update_at_random(f, n, {{3, 4}, Index{1} << 36, column, 24, 64}));
    }
  }
  const Draw wide = normal(0, t == DType::kF16 ? 30 : 300);  // f16 ends at 65504
  cases.push_back(swiglu_forward(t, 5, 40, wide));
  cases.push_back(swiglu_backward(t, 5, 40, wide));
  cases.push_back(gelu_forward(t, 5, 40, wide));
  cases.push_back(bias_gelu(t, 5, 40, wide));
  cases.push_back(gelu_backward(t, 5, 40, wide));
  for (const Alias alias : {Alias::kNone, Alias::kFirst}) {
    for (const Index H : {1, 2, 3, 8, 33, 67, 258}) cases.push_back(dropout(t, 5, 3, H, 0.1f, alias));
    cases.push_back(dropout(t, 4, 2, 64, 0.0f, alias));
    cases.push_back(dropout(t, 4, 2, 16, 0.3f, alias, 64, 16));
    cases.push_back(dropout(t, 4, 2, 24, 0.3f, alias, 50, 7));
    cases.push_back(dropout(t, 0, 2, 64, 0.5f, alias));
  }
  add_odd_elementwise(cases, t);
}

void add_sums(Cases& cases) {
  for (const Index n : {0, 1, 3, 7, 15, 17, 31, 63, 64, 65, 129, 1030}) {
    cases.push_back(accumulate(n));
    cases.push_back(sum_squares(n, normal()));
    cases.push_back(sum_squares(n, special()));
    cases.push_back(add_exact(n, normal()));
    cases.push_back(add_exact(n, special()));
    cases.push_back(cross_entropy_loss(n));
    if (n < 64) cases.push_back(cross_entropy_loss(n, RowWeights::kDrawn));
  }
  for (const Index n : {1, 5}) cases.push_back(fill_zero(DType::kI64, n));
  cases.push_back(shifted(accumulate(100)));
  cases.push_back(shifted(sum_squares(200, normal())));
  cases.push_back(large(accumulate(70000)));
  cases.push_back(large(sum_squares(70001, normal())));
  cases.push_back(large(add_exact(5000, normal())));
  cases.push_back(large(cross_entropy_loss(5000)));
}

void add_embedding_and_loss(Cases& cases, DType t) {
  for (const auto& [R, H, every_way] : row_sizes(1)) {
    cases.push_back(embedding_forward(t, R, H, 6, 4));
    cases.push_back(embedding_backward(t, R, H, 6, 4, kSmallIntegers));
  }
  cases.push_back(embedding_backward(t, 1700, 8, 2, 1, kSmallIntegers));  // hundreds of rows of each token
  cases.push_back(shifted(embedding_forward(t, 9, 24, 6, 4)));
  cases.push_back(shifted(embedding_backward(t, 9, 24, 6, 4, kSmallIntegers)));
  cases.push_back(large(embedding_forward(t, 600, 130, 50, 0)));
  cases.push_back(large(embedding_backward(t, 600, 130, 50, 0, normal())));
  const auto losses = [&](Index R, VocabularyPart part, Draw draw, auto wrap) {
    cases.push_back(wrap(cross_entropy_stats(t, R, part, draw)));
    cases.push_back(wrap(cross_entropy_backward(t, R, part, draw)));
    if (part.first_column == 0) cases.push_back(wrap(cross_entropy_gradient(t, R, part, draw)));
  };
  const auto plain = [](OpCase c) { return c; };
  for (const Index R : {0, 1, 7, 1030})
    for (const VocabularyPart part : {VocabularyPart{33, 0, 33}, {33, 40, 133}, {33, 40, 57}, {33, 40, 30}})
      if (t == DType::kF32) cases.push_back(cross_entropy_rescale(R, part));
  if (t == DType::kF32) cases.push_back(large(cross_entropy_rescale(5000, {33, 40, 57})));
  for (const auto& [R, V, every_way] : row_sizes(1)) {
    losses(R, {V, 0, V}, normal(0, 3), plain);                  // the whole vocabulary
    losses(R, {V, 40, V + 100}, normal(0, 3), plain);           // in the middle of it
    losses(R, {V, 40, 40 + (V + 1) / 2}, normal(0, 3), plain);  // its end, then padding
    losses(R, {V, 40, 30}, normal(0, 3), plain);                // nothing but padding
  }
  for (const VocabularyPart part : {VocabularyPart{33, 0, 33}, {264, 40, 40 + 132}, {33, 40, 30}}) {
    cases.push_back(cross_entropy_stats(t, 7, part, normal(0, 3), 2.5f));
    cases.push_back(cross_entropy_backward(t, 7, part, normal(0, 3), 2.5f));
    if (part.first_column == 0) cases.push_back(cross_entropy_gradient(t, 7, part, normal(0, 3), 2.5f));
    cases.push_back(cross_entropy_backward(t, 7, part, normal(0, 3), 0, RowWeights::kDrawn));
    if (part.first_column == 0) cases.push_back(cross_entropy_gradient(t, 7, part, normal(0, 3), 0, RowWeights::kDrawn));
  }
  losses(7, {129, 0, 129}, normal(0, 1000), plain);  // exp() of what is left must not overflow
  for (const VocabularyPart part : {VocabularyPart{33, 0, 33}, {264, 40, 400}, {9000, 0, 9000}})
    losses(7, part, integers(0, 1), plain);
  losses(7, {40, 0, 40}, normal(0, 3), [](OpCase c) { return shifted(std::move(c)); });
  losses(20, {5003, 5003, 10001}, normal(0, 3), [](OpCase c) { return large(std::move(c)); });
  losses(3, {9000, 0, 8999}, normal(0, 3), [](OpCase c) { return large(std::move(c)); });  // three tiles of a row
}

Cases make_cases() {
  Cases cases;
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    add_products(cases, t);
    add_fused_products(cases, t);
    add_attention(cases, t);
    add_attention_of_intervals(cases, t);
    add_heads(cases, t);
    add_norms(cases, t);
    add_elementwise(cases, t);
    add_embedding_and_loss(cases, t);
  }
  add_sums(cases);
  return cases;
}

}  // namespace

const std::vector<OpCase>& all_cases() {
  static const Cases cases = make_cases();
  return cases;
}

std::vector<OpCase> perf_cases(DType t, const ModelShape& m) {
  const Index T = m.tokens, H = m.hidden, F = m.feed_forward, V = m.vocabulary, D = H / m.heads, B = T / m.sequence;
  const DType f32 = DType::kF32;
  const Index qkv = (m.heads + 2 * m.kv_heads) * D;
  const AttentionShape attention = attention_shape(t, B, m.heads, m.kv_heads, m.sequence, m.sequence, D);
  const VocabularyPart whole{V, 0, V};
  const HeadShape heads{B, m.heads, m.sequence, D};
  Cases cases;
  for (const Index width : {qkv, F, V}) {  // a layer y = x W^T: forward, input gradient, weight gradient
    cases.push_back(matmul({T, width, H, kN, kT, t, t, kSet}, normal()));
    cases.push_back(matmul({T, H, width, kN, kN, t, t, kSet}, normal()));
    cases.push_back(matmul({width, H, T, kT, kN, t, f32, kAdd}, normal()));
  }
  cases.push_back(matmul_bias({T, qkv, H, kN, kT, t, t, kSet}, normal()));
  cases.push_back(matmul_bias_gelu({T, F, H, kN, kT, t, t, kSet}));
  cases.push_back(matmul_gelu_backward({T, F, H, kN, kN, t, t, kSet}));
  cases.push_back(matmul_bias_gradient(t, F, H, T, kAdd, normal()));
  const Cases rows = {attention_forward(attention),
                      cached_attention(attention_shape(t, B, m.heads, m.kv_heads, 1, m.sequence, D),
                                       std::vector<std::int64_t>(static_cast<std::size_t>(B), m.sequence - 1)),
                      attention_backward(attention),
                      split_heads(t, heads, qkv, 0),
                      merge_heads(t, heads, qkv, 0),
                      split_rotated_heads(t, heads, qkv, 0, D / 2),
                      merge_rotated_heads(t, heads, qkv, 0, D / 2),
                      rope(t, heads, D / 2, kN),
                      rms_norm_forward(t, T, H),
                      residual_rms_norm(t, T, H, false),
                      rms_norm_backward(t, T, H, Gradient::kAdd, kAdd),
                      rms_norm_squares(t, T, H),
                      rms_norm_apply(t, T, H),
                      rms_norm_dots(t, T, H),
                      rms_norm_apply_backward(t, T, H, Gradient::kAdd, kAdd),
                      layer_norm_forward(t, T, H),
                      residual_layer_norm(t, T, H, true),
                      layer_norm_backward(t, T, H, Gradient::kAdd, kAdd),
                      swiglu_forward(t, T, F),
                      swiglu_backward(t, T, F),
                      gelu_forward(t, T, F),
                      bias_gelu(t, T, F),
                      gelu_backward(t, T, F),
                      clip_forward(t, T * H, 1, normal()),
                      clip_backward(t, T * H, 1, true, normal()),
                      embedding_forward(t, T, H, V, 0),
                      embedding_backward(t, T, H, V, 0, normal()),
                      cross_entropy_stats(t, T, whole, normal(0, 3)),
                      cross_entropy_backward(t, T, whole, normal(0, 3)),
                      cross_entropy_gradient(t, T, whole, normal(0, 3)),
                      cross_entropy_rescale(T, whole),
                      cross_entropy_loss(T),
                      add_bias(t, T, F),
                      sum_rows(t, T, F, kAdd, normal()),
                      scale_columns(t, T, F, kSet),
                      add(t, T * H, Alias::kNone),
                      accumulate(F * H),
                      dropout(t, m.sequence, B, H, 0.1f, Alias::kNone),
                      convert(t, t == f32 ? DType::kBF16 : f32, T * F),
                      fill_zero(t, T * F),
                      sum_squares(F * H, normal()),
                      add_exact(F * H / 64, normal()),
                      update(UpdateRule::kAdamW, t, F * H, 0.1f, Alias::kNone),
                      update(UpdateRule::kLion, t, F * H, 0.1f, Alias::kNone)};
  cases.insert(cases.end(), rows.begin(), rows.end());
  return cases;
}

}  // namespace trident::conformance
