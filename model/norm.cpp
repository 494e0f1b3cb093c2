#include "model/norm.h"

#include <algorithm>
#include <utility>

#include "model/model_constants.h"

namespace trident {

void Norm::declare(ParamList& list) {
  if (kind_ == NormKind::kPlainLayerNorm) return;
  weight_ = declare_vector(list, name_ + ".weight", width_, InitKind::kOnes, partial_);
  if (kind_ == NormKind::kLayerNorm) bias_ = declare_vector(list, name_ + ".bias", width_, InitKind::kZeros, partial_);
}

ConstTensorView Norm::weight(const LayerPass& p) const { return is_plain() ? p.constants.ones() : p.weight(weight_); }

void Norm::forward(LayerPass& p, TensorView y, ConstTensorView x, TensorView sum, const op::Summands& summands) const {
  const Shape rows{x.num_elements() / width_};
  const TensorView rstd = p.save(rstd_, DType::kF32, rows);
  const TensorView mean = centers() ? p.save(mean_, DType::kF32, rows) : TensorView();
  if (kind_ == NormKind::kRmsNormRoundedOnce) {
    add(p, sum, summands);
    const ScratchScope scope(p.scratch_cursor());
    const TensorView squares = p.scratch(DType::kF32, rows);
    p.run(op::RmsNormSquares{.squares = squares, .x = as_rows(x)});
    return p.run(op::RmsNormApply{{.y = as_rows(y), .rstd = rstd, .x = as_rows(x), .weight = p.weight(weight_), .eps = eps_},
                                  squares, width_});
  }
  const op::NormedRows normed{.y = as_rows(y), .rstd = rstd, .x = as_rows(x), .weight = weight(p), .eps = eps_, .sum = sum,
                              .summands = summands};
  if (!centers()) return p.run(op::RmsNormForward{normed});
  p.run(op::LayerNormForward{normed, mean, is_plain() ? p.constants.zeros() : p.weight(bias_)});
}

void Norm::backward(LayerPass& p, TensorView d_x, ConstTensorView d_y, ConstTensorView x, Accumulate accumulate) const {
  const ScratchScope scope(p.scratch_cursor());
  const op::NormGradients gradients{.d_x = as_rows(d_x), .d_weight = p.grad_or_scratch(weight_, width_), .d_y = as_rows(d_y),
                                    .x = as_rows(x), .weight = weight(p), .rstd = p[rstd_], .accumulate_x = accumulate,
                                    .accumulate_weight = is_plain() ? Accumulate::kNo : p.grad_mode()};
  if (kind_ == NormKind::kRmsNorm) return p.run(op::RmsNormBackward{gradients});
  if (kind_ == NormKind::kRmsNormRoundedOnce) {
    const TensorView dots = p.scratch(DType::kF32, p[rstd_].shape());
    p.run(op::RmsNormDots{.dots = dots, .d_y = as_rows(d_y), .x = as_rows(x), .weight = weight(p)});
    return p.run(op::RmsNormApplyBackward{gradients, dots, width_});
  }
  const TensorView d_bias = is_plain() ? p.scratch(DType::kF32, {width_}) : p.grad_or_scratch(bias_, width_);
  p.run(op::LayerNormBackward{gradients, d_bias, p[mean_]});
}

void add(LayerPass& p, TensorView x, const op::Summands& summands) {
  if (!summands.any()) return;
  if (summands.bias_data() != nullptr)
    p.run(op::AddBias{.x = as_rows(x), .bias = summands.bias, .residual = summands.residual});
  else
    p.run(op::Add{.out = x, .a = x, .b = summands.residual});
}

Norm block_norm(const ModelConfig& config, std::string name, RecomputeClass recompute) {
  return {config.norm, config.norm_eps, config.hidden, std::move(name), PartialGradient::kUnderSequenceParallelism, recompute};
}

void PhaseNorm::enter(LayerPass& p, ConstTensorView x) const {
  if (!after_) norm_.forward(p, p.save(normed_, x.dtype(), x.shape()), x);
}

void PhaseNorm::enter(LayerPass& p, TensorView x, const op::Summands& summands) const {
  if (after_)
    add(p, x, summands);
  else
    norm_.forward(p, p.save(normed_, x.dtype(), x.shape()), x, summands);
}

ConstTensorView PhaseNorm::leave(LayerPass& p, TensorView y, FunctionRef<ConstTensorView(TensorView)> project) const {
  if (!after_) return project(y);
  const TensorView projected = p.save(projected_, y.dtype(), y.shape());
  const ConstTensorView bias = project(projected);
  if (bias.data() != nullptr) p.run(op::AddBias{.x = as_rows(projected), .bias = bias});
  norm_.forward(p, y, projected);
  return {};
}

void PhaseNorm::backward_leave(LayerPass& p, TensorView d_y) const {
  if (after_) norm_.backward(p, d_y, d_y, p[projected_], Accumulate::kNo);
}

void PhaseNorm::backward_enter(LayerPass& p, TensorView d, ConstTensorView d_input, ConstTensorView x) const {
  if (after_)
    p.run(op::Add{.out = d, .a = d, .b = d_input});
  else
    norm_.backward(p, d, d_input, x, Accumulate::kYes);
}

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
