#include "device/cpu/cpu_ops.h"

#include <cmath>

#include "core/tsan_announce.h"
#include "device/cpu/operand_checks.h"

namespace trident {

namespace {

// Operations run at once, here. On a stream that holds operations in progress they come after those.
void begin(Stream& stream) { stream.synchronize(); }

VocabularyShard vocabulary_shard(RowExtent logits, std::int64_t first_column, std::int64_t vocabulary) {
  return {logits.width, first_column, vocabulary};
}

}  // namespace

CpuOps::CpuOps(IsaLevel level, Bf16Products bf16)
    : kernels_(row_kernels(level)), matmul_(bf16, kernels_), attention_(matmul_, kernels_) {}

// ---- matrix products

std::int64_t CpuOps::prepare_matmul(const MatmulShape& shape) { return matmul_.prepare(shape); }

void CpuOps::matmul(Stream& stream, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b,
                    Transpose transpose_b, Accumulate accumulate, TensorView workspace) {
  const RowExtent stored_a = row_extent(a), stored_b = row_extent(b);
  const bool ta = transpose_a == Transpose::kYes, tb = transpose_b == Transpose::kYes;
  const MatmulShape shape{ta ? stored_a.width : stored_a.rows,
                          tb ? stored_b.rows : stored_b.width,
                          ta ? stored_a.rows : stored_a.width,
                          transpose_a,
                          transpose_b,
                          a.dtype(),
                          out.dtype(),
                          accumulate};
  expect("matmul", "b", b, a.dtype(), b.num_elements());
  TRIDENT_CHECK((tb ? stored_b.width : stored_b.rows) == shape.k, "matmul: a {} and b {} do not fit together", to_string(a.shape()),
                to_string(b.shape()));
  TRIDENT_CHECK(row_extent(out).rows == shape.m && row_extent(out).width == shape.n, "matmul: out is {}, expected [{}, {}]",
                to_string(out.shape()), shape.m, shape.n);
  const std::int64_t needed = matmul_.workspace_bytes(shape);
  TRIDENT_CHECK(workspace.num_bytes() >= needed, "matmul: a workspace of {} bytes, {} needed", workspace.num_bytes(), needed);
  begin(stream);
  announce_read(a);
  announce_read(b);
  announce_write(out);
  matmul_.run(shape, out.data(), a.data(), b.data(), workspace.data());
}

// ---- attention

namespace {

void check_attention(std::string_view operation, const AttentionShape& s) {
  TRIDENT_CHECK(s.kv_heads > 0 && s.query_heads > 0 && s.query_heads % s.kv_heads == 0,
                "{}: {} query heads over {} key/value heads", operation, s.query_heads, s.kv_heads);
  TRIDENT_CHECK(s.dtype == DType::kF32 || s.dtype == DType::kBF16, "{}: dtype {}", operation, to_string(s.dtype));
  TRIDENT_CHECK(s.head_dim > 0, "{}: head width {}", operation, s.head_dim);
}

void check_queries(std::string_view operation, const AttentionShape& s, std::string_view operand, ConstTensorView view) {
  expect_shape(operation, operand, view, s.dtype, {s.batch, s.query_heads, s.query_length, s.head_dim});
}

void check_keys(std::string_view operation, const AttentionShape& s, std::string_view operand, ConstTensorView view) {
  expect_shape(operation, operand, view, s.dtype, {s.batch, s.kv_heads, s.key_length, s.head_dim});
}

}  // namespace

std::int64_t CpuOps::attention_workspace(const AttentionShape& shape) {
  check_attention("attention_workspace", shape);
  return attention_.prepare(shape);
}

void CpuOps::attention_forward(Stream& stream, const AttentionShape& s, TensorView out, TensorView lse, ConstTensorView q,
                               ConstTensorView k, ConstTensorView v, TensorView workspace) {
  constexpr std::string_view kName = "attention_forward";
  check_attention(kName, s);
  check_queries(kName, s, "out", out);
  check_queries(kName, s, "q", q);
  check_keys(kName, s, "k", k);
  check_keys(kName, s, "v", v);
  expect(kName, "lse", lse, DType::kF32, s.batch * s.query_heads * s.query_length);
  const std::int64_t needed = attention_.workspace_bytes(s);
  TRIDENT_CHECK(workspace.num_bytes() >= needed, "{}: a workspace of {} bytes, {} needed", kName, workspace.num_bytes(), needed);
  begin(stream);
  announce_read(q);
  announce_read(k);
  announce_read(v);
  announce_write(out);
  attention_.forward(s, out, lse, q, k, v, workspace.data());
}

void CpuOps::attention_backward(Stream& stream, const AttentionShape& s, TensorView d_q, TensorView d_k, TensorView d_v,
                                ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                                ConstTensorView lse, TensorView workspace) {
  constexpr std::string_view kName = "attention_backward";
  check_attention(kName, s);
  check_queries(kName, s, "d_q", d_q);
  check_keys(kName, s, "d_k", d_k);
  check_keys(kName, s, "d_v", d_v);
  check_queries(kName, s, "d_out", d_out);
  check_queries(kName, s, "out", out);
  check_queries(kName, s, "q", q);
  check_keys(kName, s, "k", k);
  check_keys(kName, s, "v", v);
  expect(kName, "lse", lse, DType::kF32, s.batch * s.query_heads * s.query_length);
  const std::int64_t needed = attention_.workspace_bytes(s);
  TRIDENT_CHECK(workspace.num_bytes() >= needed, "{}: a workspace of {} bytes, {} needed", kName, workspace.num_bytes(), needed);
  begin(stream);
  announce_read(d_out);
  announce_read(q);
  announce_read(k);
  announce_read(v);
  announce_write(d_q);
  announce_write(d_k);
  announce_write(d_v);
  attention_.backward(s, d_q, d_k, d_v, d_out, out, q, k, v, lse, workspace.data());
}

namespace {

// heads [B, n, S, D] beside rows [S, B, C] of which columns first_column .. + n*D are meant.
void check_heads(std::string_view operation, ConstTensorView heads, ConstTensorView rows, std::int64_t first_column) {
  TRIDENT_CHECK(heads.shape().rank() == 4 && rows.shape().rank() == 3, "{}: heads {} and rows {}", operation,
                to_string(heads.shape()), to_string(rows.shape()));
  const Shape &h = heads.shape(), &r = rows.shape();
  TRIDENT_CHECK(
      h[0] == r[1] && h[2] == r[0] && first_column >= 0 && first_column + h[1] * h[3] <= r[2] && heads.dtype() == rows.dtype(),
      "{}: heads {} {} do not fit columns {}.. of rows {} {}", operation, to_string(heads.dtype()), to_string(h), first_column,
      to_string(rows.dtype()), to_string(r));
}

}  // namespace

void CpuOps::split_heads(Stream& stream, TensorView heads, ConstTensorView rows, std::int64_t first_column) {
  check_heads("split_heads", heads, rows, first_column);
  begin(stream);
  const Shape& h = heads.shape();
  kernels_.split_heads(row_type(heads.dtype()), heads.data(), rows.data(), h[0], h[1], h[2], h[3], rows.shape()[2], first_column);
}

void CpuOps::merge_heads(Stream& stream, TensorView rows, ConstTensorView heads, std::int64_t first_column) {
  check_heads("merge_heads", heads, rows, first_column);
  begin(stream);
  const Shape& h = heads.shape();
  kernels_.merge_heads(row_type(heads.dtype()), rows.data(), heads.data(), h[0], h[1], h[2], h[3], rows.shape()[2], first_column);
}

void CpuOps::rope(Stream& stream, TensorView x, ConstTensorView cos, ConstTensorView sin, ConstTensorView position,
                  Transpose inverse) {
  TRIDENT_CHECK(x.shape().rank() == 4, "rope: x is {}, expected [B, n, S, D]", to_string(x.shape()));
  const Shape& s = x.shape();
  const RowExtent table = row_extent(cos);
  expect("rope", "cos", cos, DType::kF32, table.rows * table.width);
  expect("rope", "sin", sin, DType::kF32, table.rows * table.width);
  expect("rope", "position", position, DType::kI32, s[0] * s[2]);
  TRIDENT_CHECK(2 * table.width <= s[3], "rope: {} pairs in heads of width {}", table.width, s[3]);
  begin(stream);
  kernels_.rope(row_type(x.dtype()), x.data(), cos.as<float>(), sin.as<float>(), position.as<std::int32_t>(), s[0], s[1], s[2],
                s[3], table.width, inverse);
}

// ---- embedding

void CpuOps::embedding_forward(Stream& stream, TensorView out, ConstTensorView tokens, ConstTensorView table,
                               std::int64_t first_row) {
  const RowExtent t = row_extent(table);
  const std::int64_t rows = tokens.num_elements();
  expect("embedding_forward", "tokens", tokens, DType::kI32, rows);
  expect("embedding_forward", "out", out, table.dtype(), rows * t.width);
  begin(stream);
  kernels_.embedding_forward(row_type(out.dtype()), out.data(), tokens.as<std::int32_t>(), table.data(), rows, t.width, first_row,
                             t.rows);
}

void CpuOps::embedding_backward(Stream& stream, TensorView d_table, ConstTensorView d_out, ConstTensorView tokens,
                                std::int64_t first_row) {
  const RowExtent t = row_extent(d_table);
  const std::int64_t rows = tokens.num_elements();
  expect("embedding_backward", "tokens", tokens, DType::kI32, rows);
  expect("embedding_backward", "d_table", d_table, DType::kF32, t.rows * t.width);
  expect("embedding_backward", "d_out", d_out, d_out.dtype(), rows * t.width);
  begin(stream);
  kernels_.embedding_backward(row_type(d_out.dtype()), d_table.as<float>(), d_out.data(), tokens.as<std::int32_t>(), rows, t.width,
                              first_row, t.rows);
}

// ---- cross-entropy

void CpuOps::cross_entropy_max(Stream& stream, TensorView row_max, ConstTensorView logits, std::int64_t first_column,
                               std::int64_t vocabulary) {
  const RowExtent e = row_extent(logits);
  expect("cross_entropy_max", "row_max", row_max, DType::kF32, e.rows);
  begin(stream);
  kernels_.cross_entropy_max(row_type(logits.dtype()), row_max.as<float>(), logits.data(), e.rows,
                             vocabulary_shard(e, first_column, vocabulary));
}

void CpuOps::cross_entropy_stats(Stream& stream, TensorView stats, ConstTensorView logits, ConstTensorView row_max,
                                 ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary) {
  const RowExtent e = row_extent(logits);
  expect("cross_entropy_stats", "stats", stats, DType::kF32, 2 * e.rows);
  expect("cross_entropy_stats", "row_max", row_max, DType::kF32, e.rows);
  expect("cross_entropy_stats", "targets", targets, DType::kI32, e.rows);
  begin(stream);
  kernels_.cross_entropy_stats(row_type(logits.dtype()), stats.as<float>(), stats.as<float>() + e.rows, logits.data(),
                               row_max.as<float>(), targets.as<std::int32_t>(), e.rows,
                               vocabulary_shard(e, first_column, vocabulary));
}

void CpuOps::cross_entropy_loss(Stream& stream, TensorView loss, ConstTensorView stats, ConstTensorView targets) {
  const std::int64_t rows = targets.num_elements();
  expect("cross_entropy_loss", "loss", loss, DType::kF64, 1);
  expect("cross_entropy_loss", "stats", stats, DType::kF32, 2 * rows);
  expect("cross_entropy_loss", "targets", targets, DType::kI32, rows);
  begin(stream);
  const float* sum_exp = stats.as<float>();
  const float* target_logit = sum_exp + rows;
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (targets.as<std::int32_t>()[r] >= 0) sum += std::log(double{sum_exp[r]}) - double{target_logit[r]};
  }
  *loss.as<double>() = sum;
}

void CpuOps::cross_entropy_backward(Stream& stream, TensorView logits, ConstTensorView row_max, ConstTensorView stats,
                                    ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary, float scale) {
  const RowExtent e = row_extent(logits);
  expect("cross_entropy_backward", "row_max", row_max, DType::kF32, e.rows);
  expect("cross_entropy_backward", "stats", stats, DType::kF32, 2 * e.rows);
  expect("cross_entropy_backward", "targets", targets, DType::kI32, e.rows);
  begin(stream);
  kernels_.cross_entropy_backward(row_type(logits.dtype()), logits.data(), row_max.as<float>(), stats.as<float>(),
                                  targets.as<std::int32_t>(), e.rows, vocabulary_shard(e, first_column, vocabulary), scale);
}

}  // namespace trident
