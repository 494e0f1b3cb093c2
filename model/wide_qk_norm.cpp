#include "model/wide_qk_norm.h"

#include <algorithm>
#include <cstdint>

#include "model/declare.h"

namespace trident {
namespace {

// Row 0 of f32 [2, R] is the queries', row 1 the keys'.
TensorView row_of(TensorView both, std::int64_t row) { return both.rows(row, 1).reshape({both.shape()[1]}); }

}  // namespace

WideQkNorm::WideQkNorm(const ModelConfig& config, const BlockNames& names)
    : query_name_(names.query_norm),
      key_name_(names.key_norm),
      query_width_(config.query_width()),
      key_width_(config.kv_width()),
      kv_heads_(config.kv_heads),
      eps_(static_cast<float>(config.norm_eps)) {}

void WideQkNorm::declare(ParamList& list) {
  const int degree = list.layout().degree;
  const int key_shards = static_cast<int>(std::min<std::int64_t>(degree, kv_heads_));
  key_replicas_ = degree / key_shards;
  query_weight_ = declare_sharded_vector(list, query_name_ + ".weight", query_width_, degree, InitKind::kOnes);
  key_weight_ = declare_sharded_vector(list, key_name_ + ".weight", key_width_, key_shards, InitKind::kOnes);
}

void WideQkNorm::forward(LayerPass& p, TensorView q_out, TensorView k_out, ConstTensorView q, ConstTensorView k) const {
  const TensorView rstd = p.save(rstd_, DType::kF32, {2, p.geometry.full_rows()});
  const ScratchScope scope(p.scratch_cursor());
  const TensorView squares = p.scratch(DType::kF32, rstd.shape());
  p.ops.rms_norm_squares(p.stream, row_of(squares, 0), q);
  if (counts_keys(p))
    p.ops.rms_norm_squares(p.stream, row_of(squares, 1), k);
  else
    p.ops.fill_zero(p.stream, row_of(squares, 1));
  p.tensor.all_reduce(p.stream, squares, ReduceOp::kSum);
  p.ops.rms_norm_apply(p.stream, q_out, row_of(rstd, 0), q, p.weight(query_weight_), row_of(squares, 0), query_width_, eps_);
  p.ops.rms_norm_apply(p.stream, k_out, row_of(rstd, 1), k, p.weight(key_weight_), row_of(squares, 1), key_width_, eps_);
}

void WideQkNorm::backward(LayerPass& p, TensorView d_q, TensorView d_k, ConstTensorView q, ConstTensorView k) const {
  const TensorView rstd = p[rstd_];
  const ScratchScope scope(p.scratch_cursor());
  const TensorView dots = p.scratch(DType::kF32, rstd.shape());
  p.ops.rms_norm_dots(p.stream, row_of(dots, 0), d_q, q, p.weight(query_weight_));
  p.ops.rms_norm_dots(p.stream, row_of(dots, 1), d_k, k, p.weight(key_weight_));
  p.tensor.all_reduce(p.stream, dots, ReduceOp::kSum);
  if (!counts_keys(p)) p.ops.fill_zero(p.stream, row_of(dots, 1));
  p.ops.rms_norm_apply_backward(p.stream, d_q, p.grad(query_weight_), d_q, q, p.weight(query_weight_), row_of(rstd, 0),
                                row_of(dots, 0), query_width_, Accumulate::kNo, p.grad_mode());
  p.ops.rms_norm_apply_backward(p.stream, d_k, p.grad(key_weight_), d_k, k, p.weight(key_weight_), row_of(rstd, 1),
                                row_of(dots, 1), key_width_, Accumulate::kNo, p.grad_mode());
}

}  // namespace trident
