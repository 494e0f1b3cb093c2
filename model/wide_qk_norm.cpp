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
  p.run(op::RmsNormSquares{.squares = row_of(squares, 0), .x = q});
  if (counts_keys(p))
    p.run(op::RmsNormSquares{.squares = row_of(squares, 1), .x = k});
  else
    p.run(op::FillZero{.out = row_of(squares, 1)});
  p.tensor.all_reduce(p.stream, squares, ReduceOp::kSum);
  p.run(op::RmsNormApply{{.y = q_out, .rstd = row_of(rstd, 0), .x = q, .weight = p.weight(query_weight_), .eps = eps_},
                          row_of(squares, 0), query_width_});
  p.run(op::RmsNormApply{{.y = k_out, .rstd = row_of(rstd, 1), .x = k, .weight = p.weight(key_weight_), .eps = eps_},
                          row_of(squares, 1), key_width_});
}

void WideQkNorm::backward(LayerPass& p, TensorView d_q, TensorView d_k, ConstTensorView q, ConstTensorView k) const {
  const TensorView rstd = p[rstd_];
  const ScratchScope scope(p.scratch_cursor());
  const TensorView dots = p.scratch(DType::kF32, rstd.shape());
  p.run(op::RmsNormDots{.dots = row_of(dots, 0), .d_y = d_q, .x = q, .weight = p.weight(query_weight_)});
  p.run(op::RmsNormDots{.dots = row_of(dots, 1), .d_y = d_k, .x = k, .weight = p.weight(key_weight_)});
  const TensorView d_query_weight = p.grad_or_scratch(query_weight_, d_q.shape()[1]);
  const TensorView d_key_weight = p.grad_or_scratch(key_weight_, d_k.shape()[1]);
  p.tensor.all_reduce(p.stream, dots, ReduceOp::kSum);
  if (!counts_keys(p)) p.run(op::FillZero{.out = row_of(dots, 1)});
  p.run(op::RmsNormApplyBackward{{.d_x = d_q, .d_weight = d_query_weight, .d_y = d_q, .x = q,
                                  .weight = p.weight(query_weight_), .rstd = row_of(rstd, 0), .accumulate_x = Accumulate::kNo,
                                  .accumulate_weight = p.grad_mode()}, row_of(dots, 0), query_width_});
  p.run(op::RmsNormApplyBackward{{.d_x = d_k, .d_weight = d_key_weight, .d_y = d_k, .x = k, .weight = p.weight(key_weight_),
                                  .rstd = row_of(rstd, 1), .accumulate_x = Accumulate::kNo, .accumulate_weight = p.grad_mode()},
                                  row_of(dots, 1), key_width_});
}

}  // namespace trident
