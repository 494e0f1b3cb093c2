#include "model/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "model/model_constants.h"

namespace trident {
namespace {

// Projection rows T[S*B, C] seen as [S, B, C].
TensorView by_position(const AttentionShape& shape, TensorView rows) {
  return rows.reshape({shape.query_length, shape.batch, rows.shape()[-1]});
}

}  // namespace

Attention::Attention(const ModelConfig& config, std::int64_t layer)
    : config_(config),
      names_(block_names(config, layer)),
      norm_(block_norm(config, names_.attention_norm)),
      query_norm_(NormKind::kRmsNorm, config.norm_eps, config.head_dim, names_.query_norm, PartialGradient::kAlways),
      key_norm_(NormKind::kRmsNorm, config.norm_eps, config.head_dim, names_.key_norm, PartialGradient::kAlways),
      dropout_(config.residual_dropout, DropoutPlace::kAttention) {}

void Attention::declare(ParamList& list) {
  const int tensor_degree = list.layout().degree;
  const std::int64_t head_dim = config_.head_dim;
  const int kv_shards = static_cast<int>(std::min<std::int64_t>(tensor_degree, config_.kv_heads));
  const bool fused = kv_shards == tensor_degree;
  q_.count = config_.heads / tensor_degree;
  k_.count = v_.count = config_.kv_heads / kv_shards;
  const std::int64_t q_columns = q_.count * head_dim, kv_columns = k_.count * head_dim;

  norm_.declare(list);
  RowShardedLinear linear{.name = names_.qkv,
                          .parts = {names_.query_key_value.begin(), names_.query_key_value.end()},
                          .input_columns = config_.hidden,
                          .shards = tensor_degree,
                          .bias = config_.qkv_bias,
                          .transposed_on_disk = names_.transposed_on_disk,
                          .init_std = static_cast<float>(config_.init_std)};
  std::vector<Projection> projections;
  const auto project = [&](std::int64_t columns) {
    const LinearIds ids = declare_row_sharded(list, linear);
    projections.push_back({ids.weight, ids.bias, columns});
  };
  if (fused) {
    project(q_columns + 2 * kv_columns);
  } else {
    linear.name = names_.query;
    linear.parts = {names_.query_key_value[0]};
    project(q_columns);
    linear.name = names_.key_value;
    linear.parts = {names_.query_key_value[1], names_.query_key_value[2]};
    linear.shards = kv_shards;
    project(2 * kv_columns);
  }
  num_projections_ = projections.size();
  qkv_ = ColumnParallelLinear(config_.hidden, std::move(projections));
  k_.projection = v_.projection = num_projections_ - 1;
  k_.first_column = fused ? q_columns : 0;
  v_.first_column = k_.first_column + kv_columns;

  if (config_.qk_norm) {
    query_norm_.declare(list);
    key_norm_.declare(list);
  }
  const double layers = static_cast<double>(config_.layers);
  const LinearIds output = declare_column_sharded(list, {.name = names_.attention_output,
                                                         .output_rows = config_.hidden,
                                                         .input_columns = config_.query_width(),
                                                         .bias = config_.output_bias,
                                                         .transposed_on_disk = names_.transposed_on_disk,
                                                         .init_std = static_cast<float>(config_.init_std / std::sqrt(2 * layers))});
  output_ = RowParallelLinear(q_columns, config_.hidden, output.weight, output.bias);
}

void Attention::plan(UnitPlan& plan) {
  const LayerGeometry& g = plan.geometry();
  const std::int64_t head_dim = config_.head_dim;
  shape_ = {.batch = g.micro_batch,
            .query_heads = q_.count,
            .kv_heads = k_.count,
            .query_length = g.sequence,
            .key_length = g.sequence,
            .head_dim = head_dim,
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
            .dtype = g.compute};
  plan.attention(shape_);
  dropout_.plan(plan);
  norm_.plan(plan, g.local_rows(), RecomputeClass::kBlock);
  normed_ = plan.save(g.compute, g.activation_shape(config_.hidden));
  for (Heads* heads : {&q_, &k_, &v_}) {
    const Shape shape{g.micro_batch, heads->count, g.sequence, head_dim};
    heads->saved = plan.save(g.compute, shape);
    if (config_.qk_norm && heads != &v_) heads->before = plan.save(g.compute, shape);
  }
  if (config_.qk_norm) {
    query_norm_.plan(plan, g.full_rows() * q_.count, RecomputeClass::kBlock);
    key_norm_.plan(plan, g.full_rows() * k_.count, RecomputeClass::kBlock);
  }
  out_ = plan.save(g.compute, q_.saved.shape, RecomputeClass::kAttention);
  lse_ = plan.save(DType::kF32, {g.micro_batch, q_.count, g.sequence}, RecomputeClass::kAttention);
  plan_forward(plan);
  plan_backward(plan);
}

void Attention::plan_forward(UnitPlan& plan) {
  const LayerGeometry& g = plan.geometry();
  {
    const ScratchScope scope(plan.scratch_plan());
    qkv_.plan_forward(plan);
    for (std::size_t i = 0; i < num_projections_; ++i)
      rows_[i] = plan.scratch(g.compute, {g.full_rows(), qkv_.projections()[i].output_columns});
  }
  const ScratchScope scope(plan.scratch_plan());
  merged_ = plan.scratch(g.compute, {g.full_rows(), q_.count * config_.head_dim});
  output_.plan_forward(plan);
}

void Attention::plan_backward(UnitPlan& plan) {
  const LayerGeometry& g = plan.geometry();
  const Shape merged{g.full_rows(), q_.count * config_.head_dim};
  for (std::size_t i = 0; i < num_projections_; ++i)
    d_rows_[i] = plan.keep(g.compute, {g.full_rows(), qkv_.projections()[i].output_columns});
  {
    const ScratchScope scope(plan.scratch_plan());
    d_out_ = plan.scratch(g.compute, q_.saved.shape);
    {
      const ScratchScope before_split(plan.scratch_plan());
      d_merged_ = plan.scratch(g.compute, merged);
      output_.plan_backward_input(plan);
    }
    for (Heads* heads : {&q_, &k_, &v_}) heads->gradient = plan.scratch(g.compute, heads->saved.shape);
  }
  {
    const ScratchScope scope(plan.scratch_plan());
    d_normed_ = plan.scratch(g.compute, g.activation_shape(config_.hidden));
    qkv_.plan_backward_input(plan);
    norm_.plan_backward(plan);
  }
  {
    const ScratchScope scope(plan.scratch_plan());
    merged_weight_ = plan.scratch(g.compute, merged);
    output_.plan_backward_weight(plan);
  }
  const ScratchScope scope(plan.scratch_plan());
  qkv_.plan_backward_weight(plan);
}

Attention::Views Attention::views(const LayerRun& run, const std::array<RegionTensor, kMaxProjections>& tensors) const {
  Views views;
  for (std::size_t i = 0; i < num_projections_; ++i) views[i] = run.view(tensors[i]);
  return views;
}

void Attention::rotate(const LayerRun& run, TensorView heads, Transpose inverse) const {
  if (config_.position != PositionKind::kRope) return;
  run.ops.rope(run.stream, heads, run.constants.rope_cos(), run.constants.rope_sin(), run.batch.positions_by_sample, inverse);
}

void Attention::split(const LayerRun& run, const Heads& heads, const Norm* norm, bool rotated, const Views& rows) const {
  const TensorView saved = run.view(heads.saved);
  const TensorView first = norm != nullptr ? run.view(heads.before) : saved;
  run.ops.split_heads(run.stream, first, by_position(shape_, rows[heads.projection]), heads.first_column);
  if (norm != nullptr) norm->forward(run, saved, first);
  if (rotated) rotate(run, saved, Transpose::kNo);
}

void Attention::merge_gradient(const LayerRun& run, const Heads& heads, const Norm* norm, bool rotated, const Views& d_rows) const {
  const TensorView d = run.view(heads.gradient);
  if (rotated) rotate(run, d, Transpose::kYes);
  if (norm != nullptr) norm->backward(run, d, d, run.view(heads.before), Accumulate::kNo);
  run.ops.merge_heads(run.stream, by_position(shape_, d_rows[heads.projection]), d, heads.first_column);
}

void Attention::forward(const LayerRun& run, ConstTensorView x, TensorView y) const {
  const TensorView normed = run.view(normed_), merged = run.view(merged_);
  norm_.forward(run, normed, x);
  const Views rows = views(run, rows_);
  qkv_.forward(run, normed, std::span(rows).first(num_projections_));
  split(run, q_, config_.qk_norm ? &query_norm_ : nullptr, true, rows);
  split(run, k_, config_.qk_norm ? &key_norm_ : nullptr, true, rows);
  split(run, v_, nullptr, false, rows);
  recompute_core(run);
  run.ops.merge_heads(run.stream, by_position(shape_, merged), run.view(out_), 0);
  output_.forward(run, y, merged);
  dropout_.apply(run, y, y);
  run.ops.add(run.stream, y, y, x);
}

void Attention::recompute_core(const LayerRun& run) const {
  run.ops.attention_forward(run.stream, shape_, run.view(out_), run.view(lse_), run.view(q_.saved), run.view(k_.saved),
                            run.view(v_.saved), run.workspace());
}

void Attention::backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const {
  const TensorView d_merged = run.view(d_merged_), d_out = run.view(d_out_), d_normed = run.view(d_normed_);
  dropout_.apply(run, output_.d_y(run), d);
  output_.backward_input(run, d_merged);
  run.ops.split_heads(run.stream, d_out, by_position(shape_, d_merged), 0);
  run.ops.attention_backward(run.stream, shape_, run.view(q_.gradient), run.view(k_.gradient), run.view(v_.gradient), d_out,
                             run.view(out_), run.view(q_.saved), run.view(k_.saved), run.view(v_.saved), run.view(lse_),
                             run.workspace());
  const Views d_rows = views(run, d_rows_);
  merge_gradient(run, q_, config_.qk_norm ? &query_norm_ : nullptr, true, d_rows);
  merge_gradient(run, k_, config_.qk_norm ? &key_norm_ : nullptr, true, d_rows);
  merge_gradient(run, v_, nullptr, false, d_rows);
  qkv_.backward_input(run, d_normed, std::span(d_rows).first(num_projections_));
  norm_.backward(run, d, d_normed, x, Accumulate::kYes);
}

void Attention::backward_weight(const LayerRun& run) const {
  const TensorView merged = run.view(merged_weight_);
  run.ops.merge_heads(run.stream, by_position(shape_, merged), run.view(out_), 0);
  output_.backward_weight(run, merged);
  const Views d_rows = views(run, d_rows_);
  qkv_.backward_weight(run, run.view(normed_), std::span(d_rows).first(num_projections_));
}

}  // namespace trident
