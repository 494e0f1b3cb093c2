// The definitions of CheckedOps. Included by the file of each backend that instantiates it.
#pragma once

#include <cstdint>

#include "core/exact_sum.h"
#include "core/int_math.h"
#include "device/checked_ops.h"

namespace trident {

template <class Backend>
void CheckedOps<Backend>::expect(std::string_view operation, std::string_view operand, ConstTensorView view, DType dtype,
                                 std::int64_t count) {
  TRIDENT_CHECK(view.dtype() == dtype && view.num_elements() == count, "{}: {} is {} {}, expected {} elements of {}", operation,
                operand, to_string(view.dtype()), to_string(view.shape()), count, to_string(dtype));
  expect_here(operation, operand, view);
}

template <class Backend>
void CheckedOps<Backend>::expect_here(std::string_view operation, std::string_view operand, ConstTensorView view) {
  TRIDENT_CHECK(view.empty() || Backend::reaches(view.where()), "{}: {} lies in {} memory", operation, operand,
                view.where() == MemoryKind::kDevice ? "device" : "host");
}

template <class Backend>
void CheckedOps<Backend>::expect_shape(std::string_view operation, std::string_view operand, ConstTensorView view, DType dtype,
                                       const Shape& shape) {
  expect(operation, operand, view, dtype, shape.num_elements());
  TRIDENT_CHECK(view.shape() == shape, "{}: {} is {}, expected {}", operation, operand, to_string(view.shape()), to_string(shape));
}

template <class Backend>
void CheckedOps<Backend>::expect_like(std::string_view operation, std::string_view operand, ConstTensorView view,
                                      ConstTensorView model) {
  expect(operation, operand, view, model.dtype(), model.num_elements());
  expect_here(operation, "an input", model);
}

// ---- matrix products

template <class Backend>
MatmulShape CheckedOps<Backend>::matmul_shape(const MatmulOperands& operands) {
  const ConstTensorView a = operands.a, b = operands.b;
  const RowExtent stored_a = row_extent(a), stored_b = row_extent(b), out = row_extent(operands.out);
  const bool ta = operands.transpose_a == Transpose::kYes, tb = operands.transpose_b == Transpose::kYes;
  const MatmulShape shape{ta ? stored_a.width : stored_a.rows,
                          tb ? stored_b.rows : stored_b.width,
                          ta ? stored_a.rows : stored_a.width,
                          operands.transpose_a,
                          operands.transpose_b,
                          a.dtype(),
                          operands.out.dtype(),
                          operands.accumulate};
  expect("matmul", "b", b, a.dtype(), b.num_elements());
  TRIDENT_CHECK((tb ? stored_b.width : stored_b.rows) == shape.k, "matmul: a {} and b {} do not fit together", to_string(a.shape()),
                to_string(b.shape()));
  TRIDENT_CHECK(out.rows == shape.m && out.width == shape.n, "matmul: out is {}, expected [{}, {}]",
                to_string(operands.out.shape()), shape.m, shape.n);
  return shape;
}

// ---- attention

template <class Backend>
void CheckedOps<Backend>::check_attention(std::string_view operation, const AttentionShape& s) {
  TRIDENT_CHECK(s.kv_heads > 0 && s.query_heads > 0 && s.query_heads % s.kv_heads == 0,
                "{}: {} query heads over {} key/value heads", operation, s.query_heads, s.kv_heads);
  TRIDENT_CHECK(s.dtype == DType::kF32 || s.dtype == DType::kBF16 || s.dtype == DType::kF16, "{}: dtype {}", operation, to_string(s.dtype));
  TRIDENT_CHECK(s.head_dim > 0, "{}: head width {}", operation, s.head_dim);
}

template <class Backend>
void CheckedOps<Backend>::check_attention_operands(std::string_view operation, const AttentionShape& s,
                                                   std::initializer_list<NamedView> of_queries,
                                                   std::initializer_list<NamedView> of_keys, ConstTensorView lse,
                                                   ConstTensorView workspace, std::int64_t workspace_bytes) {
  for (const NamedView& q : of_queries)
    expect_shape(operation, q.name, q.view, s.dtype, {s.batch, s.query_heads, s.query_length, s.head_dim});
  for (const NamedView& k : of_keys)
    expect_shape(operation, k.name, k.view, s.dtype, {s.batch, s.kv_heads, s.key_length, s.head_dim});
  expect(operation, "lse", lse, DType::kF32, s.batch * s.query_heads * s.query_length);
  TRIDENT_CHECK(workspace.num_bytes() >= workspace_bytes, "{}: a workspace of {} bytes, {} needed", operation,
                workspace.num_bytes(), workspace_bytes);
  expect_here(operation, "the workspace", workspace);
}

// heads [B, n, S, D] beside rows [S, B, C] of which columns first_column .. + n*D are meant.
template <class Backend>
void CheckedOps<Backend>::check_heads(std::string_view operation, ConstTensorView heads, ConstTensorView rows,
                                      std::int64_t first_column) {
  TRIDENT_CHECK(heads.shape().rank() == 4 && rows.shape().rank() == 3, "{}: heads {} and rows {}", operation,
                to_string(heads.shape()), to_string(rows.shape()));
  const Shape &h = heads.shape(), &r = rows.shape();
  TRIDENT_CHECK(
      h[0] == r[1] && h[2] == r[0] && first_column >= 0 && first_column + h[1] * h[3] <= r[2] && heads.dtype() == rows.dtype(),
      "{}: heads {} {} do not fit columns {}.. of rows {} {}", operation, to_string(heads.dtype()), to_string(h), first_column,
      to_string(rows.dtype()), to_string(r));
  expect_here(operation, "heads", heads);
  expect_here(operation, "rows", rows);
}

template <class Backend>
void CheckedOps<Backend>::split_heads(Stream& stream, TensorView heads, ConstTensorView rows, std::int64_t first_column) {
  check_heads("split_heads", heads, rows, first_column);
  const Shape& h = heads.shape();
  kernels(stream).split_heads(row_type(heads.dtype()), heads.data(), rows.data(), h[0], h[1], h[2], h[3], rows.shape()[2],
                              first_column);
}

template <class Backend>
void CheckedOps<Backend>::merge_heads(Stream& stream, TensorView rows, ConstTensorView heads, std::int64_t first_column) {
  check_heads("merge_heads", heads, rows, first_column);
  const Shape& h = heads.shape();
  kernels(stream).merge_heads(row_type(heads.dtype()), rows.data(), heads.data(), h[0], h[1], h[2], h[3], rows.shape()[2],
                              first_column);
}

template <class Backend>
void CheckedOps<Backend>::rope(Stream& stream, TensorView x, ConstTensorView cos, ConstTensorView sin, ConstTensorView position,
                               Transpose inverse) {
  expect_here("rope", "x", x);
  TRIDENT_CHECK(x.shape().rank() == 4, "rope: x is {}, expected [B, n, S, D]", to_string(x.shape()));
  const Shape& s = x.shape();
  const RowExtent table = row_extent(cos);
  expect("rope", "cos", cos, DType::kF32, table.rows * table.width);
  expect("rope", "sin", sin, DType::kF32, table.rows * table.width);
  expect("rope", "position", position, DType::kI32, s[0] * s[2]);
  TRIDENT_CHECK(2 * table.width <= s[3], "rope: {} pairs in heads of width {}", table.width, s[3]);
  kernels(stream).rope(row_type(x.dtype()), x.data(), cos.as<float>(), sin.as<float>(), position.as<std::int32_t>(), s[0], s[1],
                       s[2], s[3], table.width, inverse);
}

// ---- embedding

template <class Backend>
void CheckedOps<Backend>::embedding_forward(Stream& stream, TensorView out, ConstTensorView tokens, ConstTensorView table,
                                            std::int64_t first_row) {
  expect_here("embedding_forward", "table", table);
  const RowExtent t = row_extent(table);
  const std::int64_t rows = tokens.num_elements();
  expect("embedding_forward", "tokens", tokens, DType::kI32, rows);
  expect("embedding_forward", "out", out, table.dtype(), rows * t.width);
  kernels(stream).embedding_forward(row_type(out.dtype()), out.data(), tokens.as<std::int32_t>(), table.data(), rows, t.width,
                                    first_row, t.rows);
}

template <class Backend>
void CheckedOps<Backend>::embedding_backward(Stream& stream, TensorView d_table, ConstTensorView d_out, ConstTensorView tokens,
                                             std::int64_t first_row) {
  const RowExtent t = row_extent(d_table);
  const std::int64_t rows = tokens.num_elements();
  expect("embedding_backward", "tokens", tokens, DType::kI32, rows);
  expect("embedding_backward", "d_table", d_table, DType::kF32, t.rows * t.width);
  expect("embedding_backward", "d_out", d_out, d_out.dtype(), rows * t.width);
  kernels(stream).embedding_backward(row_type(d_out.dtype()), d_table.as<float>(), d_out.data(), tokens.as<std::int32_t>(), rows,
                                     t.width, first_row, t.rows);
}

// ---- cross-entropy

template <class Backend>
void CheckedOps<Backend>::cross_entropy_max(Stream& stream, TensorView row_max, ConstTensorView logits, std::int64_t first_column,
                                            std::int64_t vocabulary) {
  expect_here("cross_entropy_max", "logits", logits);
  const RowExtent e = row_extent(logits);
  expect("cross_entropy_max", "row_max", row_max, DType::kF32, e.rows);
  kernels(stream).cross_entropy_max(row_type(logits.dtype()), row_max.as<float>(), logits.data(), e.rows,
                                    vocabulary_shard(e, first_column, vocabulary));
}

template <class Backend>
void CheckedOps<Backend>::cross_entropy_stats(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView logits,
                                              ConstTensorView row_max, ConstTensorView targets, std::int64_t first_column,
                                              std::int64_t vocabulary) {
  expect_here("cross_entropy_stats", "logits", logits);
  const RowExtent e = row_extent(logits);
  expect("cross_entropy_stats", "sum_exp", sum_exp, DType::kF32, e.rows);
  expect("cross_entropy_stats", "target_logit", target_logit, DType::kF32, e.rows);
  expect("cross_entropy_stats", "row_max", row_max, DType::kF32, e.rows);
  expect("cross_entropy_stats", "targets", targets, DType::kI32, e.rows);
  kernels(stream).cross_entropy_stats(row_type(logits.dtype()), sum_exp.as<float>(), target_logit.as<float>(), logits.data(),
                                      row_max.as<float>(), targets.as<std::int32_t>(), e.rows,
                                      vocabulary_shard(e, first_column, vocabulary));
}

template <class Backend>
void CheckedOps<Backend>::cross_entropy_rescale(Stream& stream, TensorView sum_exp, TensorView target_logit,
                                                ConstTensorView shard_max, ConstTensorView row_max, ConstTensorView targets,
                                                std::int64_t columns, std::int64_t first_column, std::int64_t vocabulary) {
  constexpr std::string_view kName = "cross_entropy_rescale";
  const std::int64_t rows = targets.num_elements();
  expect(kName, "sum_exp", sum_exp, DType::kF32, rows);
  expect(kName, "target_logit", target_logit, DType::kF32, rows);
  expect(kName, "shard_max", shard_max, DType::kF32, rows);
  expect(kName, "row_max", row_max, DType::kF32, rows);
  expect(kName, "targets", targets, DType::kI32, rows);
  kernels(stream).cross_entropy_rescale(sum_exp.as<float>(), target_logit.as<float>(), shard_max.as<float>(), row_max.as<float>(),
                                        targets.as<std::int32_t>(), rows,
                                        vocabulary_shard({rows, columns}, first_column, vocabulary));
}

template <class Backend>
void CheckedOps<Backend>::cross_entropy_backward(Stream& stream, TensorView logits, ConstTensorView row_max,
                                                 ConstTensorView sum_exp, ConstTensorView targets, std::int64_t first_column,
                                                 std::int64_t vocabulary, float scale) {
  expect_here("cross_entropy_backward", "logits", logits);
  const RowExtent e = row_extent(logits);
  expect("cross_entropy_backward", "row_max", row_max, DType::kF32, e.rows);
  expect("cross_entropy_backward", "sum_exp", sum_exp, DType::kF32, e.rows);
  expect("cross_entropy_backward", "targets", targets, DType::kI32, e.rows);
  kernels(stream).cross_entropy_backward(row_type(logits.dtype()), logits.data(), row_max.as<float>(), sum_exp.as<float>(),
                                         targets.as<std::int32_t>(), e.rows, vocabulary_shard(e, first_column, vocabulary), scale);
}

template <class Backend>
void CheckedOps<Backend>::cross_entropy_loss(Stream& stream, TensorView loss, ConstTensorView sum_exp, ConstTensorView target_logit,
                                             ConstTensorView targets) {
  const std::int64_t rows = targets.num_elements();
  expect("cross_entropy_loss", "loss", loss, DType::kF64, 1);
  expect("cross_entropy_loss", "sum_exp", sum_exp, DType::kF32, rows);
  expect("cross_entropy_loss", "target_logit", target_logit, DType::kF32, rows);
  expect("cross_entropy_loss", "targets", targets, DType::kI32, rows);
  kernels(stream).cross_entropy_loss(loss.as<double>(), sum_exp.as<float>(), target_logit.as<float>(),
                                     targets.as<std::int32_t>(), rows);
}

// ---- norms

template <class Backend>
void CheckedOps<Backend>::rms_norm_forward(Stream& stream, TensorView y, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                                           float eps) {
  constexpr std::string_view kName = "rms_norm_forward";
  const RowExtent e = row_extent(x);
  expect_like(kName, "y", y, x);
  expect(kName, "rstd", rstd, DType::kF32, e.rows);
  expect(kName, "weight", weight, x.dtype(), e.width);
  kernels(stream).rms_norm_forward(row_type(x.dtype()), y.data(), rstd.as<float>(), x.data(), weight.data(), e.rows, e.width, eps);
}

template <class Backend>
void CheckedOps<Backend>::rms_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, ConstTensorView d_y,
                                            ConstTensorView x, ConstTensorView weight, ConstTensorView rstd,
                                            Accumulate accumulate_x, Accumulate accumulate_weight) {
  constexpr std::string_view kName = "rms_norm_backward";
  const RowExtent e = row_extent(x);
  expect_like(kName, "d_x", d_x, x);
  expect_like(kName, "d_y", d_y, x);
  expect(kName, "d_weight", d_weight, DType::kF32, e.width);
  expect(kName, "weight", weight, x.dtype(), e.width);
  expect(kName, "rstd", rstd, DType::kF32, e.rows);
  kernels(stream).rms_norm_backward(row_type(x.dtype()), d_x.data(), d_weight.as<float>(), d_y.data(), x.data(), weight.data(),
                                    rstd.as<float>(), e.rows, e.width, accumulate_x, accumulate_weight);
}

template <class Backend>
void CheckedOps<Backend>::layer_norm_forward(Stream& stream, TensorView y, TensorView mean, TensorView rstd, ConstTensorView x,
                                             ConstTensorView weight, ConstTensorView bias, float eps) {
  constexpr std::string_view kName = "layer_norm_forward";
  const RowExtent e = row_extent(x);
  expect_like(kName, "y", y, x);
  expect(kName, "mean", mean, DType::kF32, e.rows);
  expect(kName, "rstd", rstd, DType::kF32, e.rows);
  expect(kName, "weight", weight, x.dtype(), e.width);
  expect(kName, "bias", bias, x.dtype(), e.width);
  kernels(stream).layer_norm_forward(row_type(x.dtype()), y.data(), mean.as<float>(), rstd.as<float>(), x.data(), weight.data(),
                                     bias.data(), e.rows, e.width, eps);
}

template <class Backend>
void CheckedOps<Backend>::layer_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, TensorView d_bias,
                                              ConstTensorView d_y, ConstTensorView x, ConstTensorView weight, ConstTensorView mean,
                                              ConstTensorView rstd, Accumulate accumulate_x, Accumulate accumulate_weight) {
  constexpr std::string_view kName = "layer_norm_backward";
  const RowExtent e = row_extent(x);
  expect_like(kName, "d_x", d_x, x);
  expect_like(kName, "d_y", d_y, x);
  expect(kName, "d_weight", d_weight, DType::kF32, e.width);
  expect(kName, "d_bias", d_bias, DType::kF32, e.width);
  expect(kName, "weight", weight, x.dtype(), e.width);
  expect(kName, "mean", mean, DType::kF32, e.rows);
  expect(kName, "rstd", rstd, DType::kF32, e.rows);
  kernels(stream).layer_norm_backward(row_type(x.dtype()), d_x.data(), d_weight.as<float>(), d_bias.as<float>(), d_y.data(),
                                      x.data(), weight.data(), mean.as<float>(), rstd.as<float>(), e.rows, e.width, accumulate_x,
                                      accumulate_weight);
}

// ---- activations

template <class Backend>
void CheckedOps<Backend>::swiglu_forward(Stream& stream, TensorView out, ConstTensorView gate_up) {
  expect_here("swiglu_forward", "out", out);
  const RowExtent e = row_extent(out);
  expect("swiglu_forward", "gate_up", gate_up, out.dtype(), 2 * e.rows * e.width);
  kernels(stream).swiglu_forward(row_type(out.dtype()), out.data(), gate_up.data(), e.rows, e.width);
}

template <class Backend>
void CheckedOps<Backend>::swiglu_backward(Stream& stream, TensorView d_gate_up, ConstTensorView d_out, ConstTensorView gate_up) {
  expect_here("swiglu_backward", "d_out", d_out);
  const RowExtent e = row_extent(d_out);
  expect("swiglu_backward", "gate_up", gate_up, d_out.dtype(), 2 * e.rows * e.width);
  expect_like("swiglu_backward", "d_gate_up", d_gate_up, gate_up);
  kernels(stream).swiglu_backward(row_type(d_out.dtype()), d_gate_up.data(), d_out.data(), gate_up.data(), e.rows, e.width);
}

template <class Backend>
void CheckedOps<Backend>::gelu_forward(Stream& stream, TensorView out, ConstTensorView x) {
  expect_like("gelu_forward", "out", out, x);
  kernels(stream).gelu_forward(row_type(x.dtype()), out.data(), x.data(), x.num_elements());
}

template <class Backend>
void CheckedOps<Backend>::gelu_backward(Stream& stream, TensorView d_x, ConstTensorView d_out, ConstTensorView x) {
  expect_like("gelu_backward", "d_x", d_x, x);
  expect_like("gelu_backward", "d_out", d_out, x);
  kernels(stream).gelu_backward(row_type(x.dtype()), d_x.data(), d_out.data(), x.data(), x.num_elements());
}

// ---- elementwise, copies, reductions

template <class Backend>
void CheckedOps<Backend>::add_bias(Stream& stream, TensorView x, ConstTensorView bias) {
  expect_here("add_bias", "x", x);
  const RowExtent e = row_extent(x);
  expect("add_bias", "bias", bias, x.dtype(), e.width);
  kernels(stream).add_bias(row_type(x.dtype()), x.data(), bias.data(), e.rows, e.width);
}

template <class Backend>
void CheckedOps<Backend>::sum_rows(Stream& stream, TensorView out, ConstTensorView x, Accumulate accumulate) {
  expect_here("sum_rows", "x", x);
  const RowExtent e = row_extent(x);
  expect("sum_rows", "out", out, DType::kF32, e.width);
  kernels(stream).sum_rows(row_type(x.dtype()), out.as<float>(), x.data(), e.rows, e.width, accumulate);
}

template <class Backend>
void CheckedOps<Backend>::add(Stream& stream, TensorView out, ConstTensorView a, ConstTensorView b) {
  expect_like("add", "b", b, a);
  expect_like("add", "out", out, a);
  kernels(stream).add(row_type(a.dtype()), out.data(), a.data(), b.data(), a.num_elements());
}

template <class Backend>
void CheckedOps<Backend>::accumulate(Stream& stream, TensorView out, ConstTensorView x) {
  expect("accumulate", "x", x, DType::kF32, x.num_elements());
  expect_like("accumulate", "out", out, x);
  kernels(stream).accumulate(out.as<float>(), x.as<float>(), x.num_elements());
}

template <class Backend>
void CheckedOps<Backend>::dropout(Stream& stream, TensorView out, ConstTensorView x, const DropoutSpec& spec) {
  TRIDENT_CHECK(x.shape().rank() == 3, "dropout: x is {}, expected [S, B, H]", to_string(x.shape()));
  const Shape& s = x.shape();
  expect_like("dropout", "out", out, x);
  expect("dropout", "samples", spec.samples, DType::kI64, s[1]);
  const DropoutRows rows{
      spec.probability, {spec.key[0], spec.key[1]}, spec.sequence, spec.position_offset, spec.samples.as<std::int64_t>()};
  kernels(stream).dropout(row_type(x.dtype()), out.data(), x.data(), s[0], s[1], s[2], rows);
}

template <class Backend>
void CheckedOps<Backend>::convert(Stream& stream, TensorView out, ConstTensorView x) {
  expect("convert", "x", x, x.dtype(), out.num_elements());
  TRIDENT_CHECK(out.dtype() == x.dtype() || out.dtype() == DType::kF32 || x.dtype() == DType::kF32, "convert: {} to {}",
                to_string(x.dtype()), to_string(out.dtype()));
  kernels(stream).convert(row_type(out.dtype()), out.data(), row_type(x.dtype()), x.data(), x.num_elements());
}

template <class Backend>
void CheckedOps<Backend>::fill_zero(Stream& stream, TensorView out) {
  expect("fill_zero", "out", out, out.dtype(), out.num_elements());
  kernels(stream).fill_zero(out.data(), out.num_bytes());
}

template <class Backend>
void CheckedOps<Backend>::sum_squares(Stream& stream, TensorView out, ConstTensorView x) {
  constexpr std::int64_t kBlock = 64;
  expect("sum_squares", "x", x, DType::kF32, x.num_elements());
  expect("sum_squares", "out", out, DType::kF64, ceil_div(x.num_elements(), kBlock));
  kernels(stream).sum_squares(out.as<double>(), x.as<float>(), x.num_elements());
}

template <class Backend>
void CheckedOps<Backend>::add_exact(Stream& stream, TensorView limbs, ConstTensorView x) {
  expect("add_exact", "limbs", limbs, DType::kI64, ExactSum::kLimbs);
  expect("add_exact", "x", x, DType::kF64, x.num_elements());
  kernels(stream).add_exact(limbs.as<std::int64_t>(), x.as<double>(), x.num_elements());
}

// ---- optimizer

template <class Backend>
void CheckedOps<Backend>::adamw(Stream& stream, TensorView param, TensorView master, TensorView m, TensorView v,
                                ConstTensorView grad, const AdamWParams& p) {
  const std::int64_t n = master.num_elements();
  expect("adamw", "param", param, param.dtype(), n);
  expect("adamw", "master", master, DType::kF32, n);
  expect("adamw", "m", m, DType::kF32, n);
  expect("adamw", "v", v, DType::kF32, n);
  expect("adamw", "grad", grad, DType::kF32, n);
  AdamWStep step{p.lr, p.beta1, p.beta2, p.eps, p.weight_decay, p.grad_scale, p.bias_correction1, p.bias_correction2};
  if (!p.rounding) {
    kernels(stream).adamw(row_type(param.dtype()), param.data(), master.as<float>(), m.as<float>(), v.as<float>(), grad.as<float>(),
                          n, step);
    return;
  }
  const StochasticRounding& r = *p.rounding;
  TRIDENT_CHECK(param.dtype() == DType::kBF16, "adamw: stochastic rounding of {} instead of bf16", to_string(param.dtype()));
  TRIDENT_CHECK(r.first_index >= 0 && r.first_column >= 0 && r.first_column < r.columns && r.columns <= r.stride &&
                    r.columns < std::int64_t{1} << 31,
                "adamw: stochastic rounding from index {}, column {} of {}, with a stride of {}", r.first_index, r.first_column, r.columns,
                r.stride);
  step.set_update(r.update);
  const RoundedElements elements{{r.key[0], r.key[1]}, r.first_index, r.first_column, r.columns, r.stride};
  kernels(stream).adamw_stochastic(param.data(), master.as<float>(), m.as<float>(), v.as<float>(), grad.as<float>(), n, step, elements);
}

}  // namespace trident
