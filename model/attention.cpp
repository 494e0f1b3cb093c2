#include "model/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/at.h"
#include "model/cached_step.h"
#include "model/declare.h"
#include "model/model_constants.h"

namespace trident {
namespace {

// Projection rows T[S*B, C] seen as [S, B, C].
TensorView by_position(const LayerGeometry& g, TensorView rows) {
  return rows.reshape({g.sequence, g.micro_batch, rows.shape()[-1]});
}

}  // namespace

Attention::Attention(const ModelConfig& config, std::int64_t layer)
    : config_(config),
      slides_(config.slides(layer)),
      names_(block_names(config, layer)),
      norm_(config, names_.attention_norm, "the attention norm's output", "the attention part's output"),
      query_norm_(NormKind::kRmsNorm, config.norm_eps, config.head_dim, names_.query_norm, PartialGradient::kAlways),
      key_norm_(NormKind::kRmsNorm, config.norm_eps, config.head_dim, names_.key_norm, PartialGradient::kAlways),
      wide_norm_(config, names_),
      dropout_(config.residual_dropout, DropoutPlace::kAttention) {}

void Attention::declare(ParamList& list) {
  list.follow(config_.tuning);
  const int tensor_degree = list.layout().degree;
  const std::int64_t head_dim = config_.head_dim;
  const int kv_shards = static_cast<int>(std::min<std::int64_t>(tensor_degree, config_.kv_heads));
  const bool fused = kv_shards == tensor_degree;
  q_.count = config_.heads / tensor_degree;
  k_.count = v_.count = local_kv_heads(config_, tensor_degree);
  const std::int64_t q_columns = q_.count * head_dim, kv_columns = k_.count * head_dim;

  norm_.declare(list);
  LinearKind kind{ActivationKind::kAttention, DropoutPlace::kQueryAdapter, config_.qkv_bias, names_.transposed_on_disk};
  const auto& [query, key, value] = names_.query_key_value;
  std::vector<RowShardedLinear> linears{{names_.qkv, {query, key, value}, tensor_degree}};
  if (!fused) linears = {{names_.query, {query}, tensor_degree}, {names_.key_value, {key, value}, kv_shards}};
  qkv_ = declare_column_parallel(list, config_, kind, names_.qkv, std::move(linears));
  k_.projection = v_.projection = qkv_.projections().size() - 1;
  k_.first_column = fused ? q_columns : 0;
  v_.first_column = k_.first_column + kv_columns;

  if (config_.qk_norm == QkNorm::kFullWidth) wide_norm_.declare(list);
  if (config_.qk_norm == QkNorm::kPerHead) {
    query_norm_.declare(list);
    key_norm_.declare(list);
  }
  kind.dropout = DropoutPlace::kAttentionOutputAdapter, kind.bias = config_.output_bias;
  output_ = declare_row_parallel(list, config_, kind, names_.attention_output, config_.query_width());
}

AttentionShape Attention::shape(const LayerGeometry& g) const {
  const std::int64_t window = config_.sliding_window, seen = g.document_interval;
  return {.batch = g.micro_batch,
          .query_heads = q_.count,
          .kv_heads = k_.count,
          .query_length = g.sequence,
          .key_length = g.sequence,
          .head_dim = config_.head_dim,
          .interval = !is_windowed(g) ? seen : seen > 0 ? std::min(window, seen) : window,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
          .softcap = static_cast<float>(config_.attention_softcap),
          .dtype = g.compute};
}

ConstTensorView Attention::first_key(const LayerPass& p) const {
  if (is_windowed(p.geometry)) return p.batch.first_key_in_window;
  return p.geometry.document_interval > 0 ? p.batch.first_key : ConstTensorView();
}

op::Rotation Attention::rotation(const LayerPass& p) const {
  if (config_.position != PositionKind::kRope) return {};
  const bool own = p.batch.rope_cos.shape().rank() > 0;
  return {own ? p.batch.rope_cos : p.constants.rope_cos(), own ? p.batch.rope_sin : p.constants.rope_sin(),
          p.batch.positions_by_sample};
}

void Attention::split(LayerPass& p, const Heads& heads, const Norm* norm, const op::Rotation& rotation, const Views& rows) const {
  const Shape shape{p.geometry.micro_batch, heads.count, p.geometry.sequence, config_.head_dim};
  const TensorView saved = p.save(heads.saved, p.geometry.compute, shape);
  op::SplitHeads splits{.heads = saved, .rows = by_position(p.geometry, rows[heads.projection]),
                        .first_column = heads.first_column};
  if (norm == nullptr) {
    splits.rotation = rotation;
    return p.run(splits);
  }
  splits.heads = p.save(heads.before, p.geometry.compute, shape);
  p.run(splits);
  norm->forward(p, saved, splits.heads);
  if (rotation.turns()) p.run(op::Rope{.x = saved, .rotation = rotation, .inverse = Transpose::kNo});
}

void Attention::merge_gradient(LayerPass& p, const Heads& heads, const Norm* norm, const op::Rotation& rotation, TensorView d,
                               const Views& d_rows) const {
  op::MergeHeads merges{.rows = by_position(p.geometry, d_rows[heads.projection]), .heads = d, .first_column = heads.first_column};
  if (norm == nullptr) {
    merges.rotation = rotation;
    return p.run(merges);
  }
  if (rotation.turns()) p.run(op::Rope{.x = d, .rotation = rotation, .inverse = Transpose::kYes});
  norm->backward(p, d, d, p[heads.before], Accumulate::kNo);
  p.run(merges);
}

void Attention::split_after_wide_norm(LayerPass& p, const Views& rows) const {
  const LayerGeometry& g = p.geometry;
  const auto columns_of = [&](const Heads& heads) {
    const TensorView columns = p.save(heads.before, g.compute, {g.full_rows(), heads.count * config_.head_dim});
    p.copy_columns(columns, rows[heads.projection], heads.first_column);
    return columns;
  };
  const TensorView q = columns_of(q_), k = columns_of(k_);
  const ScratchScope scope(p.scratch_cursor());
  const TensorView q_normed = p.scratch(g.compute, q.shape()), k_normed = p.scratch(g.compute, k.shape());
  wide_norm_.forward(p, q_normed, k_normed, q, k);
  const auto split_normed = [&](const Heads& heads, TensorView normed) {
    const TensorView saved = p.save(heads.saved, g.compute, {g.micro_batch, heads.count, g.sequence, config_.head_dim});
    p.run(op::SplitHeads{.heads = saved, .rows = by_position(g, normed), .first_column = 0, .rotation = rotation(p)});
  };
  split_normed(q_, q_normed);
  split_normed(k_, k_normed);
}

void Attention::merge_gradient_through_wide_norm(LayerPass& p, TensorView d_q, TensorView d_k, const Views& d_rows) const {
  const LayerGeometry& g = p.geometry;
  const ScratchScope scope(p.scratch_cursor());
  const auto merged = [&](TensorView d, const Heads& heads) {
    const TensorView columns = p.scratch(g.compute, {g.full_rows(), heads.count * config_.head_dim});
    p.run(op::MergeHeads{.rows = by_position(g, columns), .heads = d, .first_column = 0, .rotation = rotation(p)});
    return columns;
  };
  const TensorView d_q_columns = merged(d_q, q_), d_k_columns = merged(d_k, k_);
  wide_norm_.backward(p, d_q_columns, d_k_columns, p[q_.before], p[k_.before]);
  p.write_columns(d_rows[q_.projection], d_q_columns, q_.first_column);
  p.write_columns(d_rows[k_.projection], d_k_columns, k_.first_column);
}

bool Attention::heads_stay_rows(const LayerPass& p) const {
  return p.ops.attends_by_rows() && config_.qk_norm == QkNorm::kNone && p.batch.cached == nullptr;
}

TensorView Attention::heads_of(const LayerPass& p, const Heads& heads) const {
  return heads_stay_rows(p) ? by_position(p.geometry, p[rows_[heads.projection]]) : p[heads.saved];
}

Shape Attention::output_shape(const LayerPass& p) const {
  const LayerGeometry& g = p.geometry;
  if (p.ops.attends_by_rows()) return {g.sequence, g.micro_batch, inner_columns()};
  return {g.micro_batch, q_.count, g.sequence, config_.head_dim};
}

TensorView Attention::merged_output(LayerPass& p) const {
  const Shape shape{p.geometry.full_rows(), inner_columns()};
  if (p.ops.attends_by_rows()) return p[out_].reshape(shape);
  const TensorView merged = p.scratch(p.geometry.compute, shape);
  p.run(op::MergeHeads{.rows = by_position(p.geometry, merged), .heads = p[out_], .first_column = 0});
  return merged;
}

Attention::Views Attention::project(LayerPass& p, ConstTensorView x) const {
  Views rows, projected;
  for (std::size_t i = 0; i < qkv_.projections().size(); ++i) {
    const Shape shape{p.geometry.full_rows(), qkv_.projections()[i].output_columns};
    rows[i] = heads_stay_rows(p) ? p.save(rows_[i], p.geometry.compute, shape) : p.scratch(p.geometry.compute, shape);
    projected[i] = config_.clip_qkv > 0 ? p.save(unclipped_[i], p.geometry.compute, shape) : rows[i];
  }
  qkv_.forward(p, x, used(projected));
  if (config_.clip_qkv > 0)
    for (std::size_t i = 0; i < qkv_.projections().size(); ++i)
      p.run(op::ClipForward{.out = rows[i], .x = projected[i], .limit = static_cast<float>(config_.clip_qkv)});
  return rows;
}

op::Summands Attention::forward(LayerPass& p, ConstTensorView x, TensorView y) const {
  norm_.enter(p, x);
  {
    const ScratchScope scope(p.scratch_cursor());
    const Views rows = project(p, norm_.input(p, x));
    if (config_.qk_norm == QkNorm::kFullWidth) {
      split_after_wide_norm(p, rows);
    } else if (!heads_stay_rows(p)) {
      split(p, q_, config_.qk_norm == QkNorm::kPerHead ? &query_norm_ : nullptr, rotation(p), rows);
      split(p, k_, config_.qk_norm == QkNorm::kPerHead ? &key_norm_ : nullptr, rotation(p), rows);
    }
    if (!heads_stay_rows(p)) split(p, v_, nullptr, {}, rows);
  }
  p.batch.cached != nullptr ? attend_cached(p, *p.batch.cached) : recompute_core(p);
  const ScratchScope scope(p.scratch_cursor());
  const TensorView merged = merged_output(p);
  ConstTensorView residual = x;
  const bool joins = !norm_.is_after() && !dropout_.may_drop();
  const ConstTensorView bias =
      norm_.leave(p, y, [&](TensorView out) { return output_.forward(p, out, merged, joins ? &residual : nullptr); });
  return dropout_.apply_before(p, y, {.bias = bias, .residual = residual});
}

void Attention::recompute_core(LayerPass& p) const {
  const TensorView out = p.save(out_, p.geometry.compute, output_shape(p));
  const TensorView lse = p.save(lse_, DType::kF32, {p.geometry.micro_batch, q_.count, p.geometry.sequence});
  p.run(op::AttentionForward{.shape = shape(p.geometry), .out = out, .lse = lse, .q = heads_of(p, q_), .k = heads_of(p, k_),
                             .v = heads_of(p, v_), .workspace = p.workspace(), .first_key = first_key(p), .columns = columns(),
                             .rotation = rotation_of_rows(p)});
}

void Attention::attend_cached(LayerPass& p, const CachedStep& step) const {
  const LayerCache& cache = at(step.caches, p.unit);
  const TensorView q = p[q_.saved], k = p[k_.saved], v = p[v_.saved];
  const TensorView out = p.save(out_, q.dtype(), output_shape(p));
  const TensorView lse = p.save(lse_, DType::kF32, {p.geometry.micro_batch, q_.count, p.geometry.sequence});
  const bool windowed = slides_ && step.window.capacity > 0;
  const CachePlaces& places = windowed ? step.window : step.all;
  for (std::int64_t b = 0; b < p.geometry.micro_batch; ++b) {
    const std::int64_t first = at(places.first, b), count = at(step.count, b);
    const std::int64_t moved = places.moved.empty() ? 0 : at(places.moved, b);
    TRIDENT_CHECK(first >= 0 && count >= 1 && count <= p.geometry.sequence && first + count <= places.capacity,
                  "tokens {}+{} in a pass of {} rows over a cache of {}", first, count, p.geometry.sequence, places.capacity);
    for (std::int64_t head = 0; head < k_.count; ++head) {
      const std::int64_t D = config_.head_dim, from = (b * k_.count + head) * p.geometry.sequence * D;
      const std::int64_t front = (b * k_.count + head) * places.capacity * D, to = front + first * D;
      if (moved > 0 && first > 0)
        for (const TensorView kept : {cache.keys, cache.values})
          p.run(op::Convert{.out = kept.range(front, first * D), .x = kept.range(front + moved * D, first * D)});
      p.run(op::Convert{.out = cache.keys.range(to, count * D), .x = k.range(from, count * D)});
      p.run(op::Convert{.out = cache.values.range(to, count * D), .x = v.range(from, count * D)});
    }
  }
  AttentionShape over_cache = shape(p.geometry);
  over_cache.key_length = places.capacity;
  over_cache.interval = windowed ? config_.sliding_window : 0;
  p.run(op::CachedAttention{.shape = over_cache, .first = places.first, .out = out, .lse = lse, .q = q, .k = cache.keys,
                            .v = cache.values, .workspace = p.workspace(),
                            .first_key = windowed ? p.batch.first_key_in_window : ConstTensorView()});
}

void Attention::backward_input(LayerPass& p, ConstTensorView x, TensorView d) const {
  const LayerGeometry& g = p.geometry;
  Views d_rows;
  for (std::size_t i = 0; i < qkv_.projections().size(); ++i)
    d_rows[i] = p.keep(d_rows_[i], g.compute, {g.full_rows(), qkv_.projections()[i].output_columns});
  dropout_.apply(p, output_.d_y(p), d);
  norm_.backward_leave(p, output_.d_y(p));
  {
    const ScratchScope scope(p.scratch_cursor());
    const bool stay = heads_stay_rows(p), by_rows = p.ops.attends_by_rows();
    const TensorView q = heads_of(p, q_), k = heads_of(p, k_), v = heads_of(p, v_);
    const TensorView d_out = p.scratch(g.compute, output_shape(p));
    {
      const ScratchScope before_split(p.scratch_cursor());
      const Shape rows{g.full_rows(), inner_columns()};
      const TensorView d_merged = by_rows ? d_out.reshape(rows) : p.scratch(g.compute, rows);
      output_.backward_input(p, d_merged);
      if (!by_rows) p.run(op::SplitHeads{.heads = d_out, .rows = by_position(g, d_merged), .first_column = 0});
    }
    const auto gradient = [&](const Heads& heads, const Shape& shape) {
      return stay ? by_position(g, d_rows[heads.projection]) : p.scratch(g.compute, shape);
    };
    const TensorView d_q = gradient(q_, q.shape()), d_k = gradient(k_, k.shape()), d_v = gradient(v_, v.shape());
    p.run(op::AttentionBackward{.shape = shape(g), .d_q = d_q, .d_k = d_k, .d_v = d_v, .d_out = d_out, .out = p[out_], .q = q,
                                .k = k, .v = v, .lse = p[lse_], .workspace = p.workspace(), .first_key = first_key(p),
                                .columns = columns(), .rotation = rotation_of_rows(p)});
    if (config_.qk_norm == QkNorm::kFullWidth) {
      merge_gradient_through_wide_norm(p, d_q, d_k, d_rows);
    } else if (!stay) {
      merge_gradient(p, q_, config_.qk_norm == QkNorm::kPerHead ? &query_norm_ : nullptr, rotation(p), d_q, d_rows);
      merge_gradient(p, k_, config_.qk_norm == QkNorm::kPerHead ? &key_norm_ : nullptr, rotation(p), d_k, d_rows);
    }
    if (!stay) merge_gradient(p, v_, nullptr, {}, d_v, d_rows);
    if (config_.clip_qkv > 0)
      for (std::size_t i = 0; i < qkv_.projections().size(); ++i)
        p.run(op::ClipBackward{.d_x = d_rows[i], .d_out = d_rows[i], .x = p[unclipped_[i]],
                               .limit = static_cast<float>(config_.clip_qkv)});
  }
  const ScratchScope scope(p.scratch_cursor());
  const TensorView d_normed = p.scratch(x.dtype(), x.shape());
  qkv_.backward_input(p, d_normed, used(d_rows));
  norm_.backward_enter(p, d, d_normed, x);
}

void Attention::backward_weight(LayerPass& p, ConstTensorView x) const {
  if (output_.trains(p)) {
    const ScratchScope scope(p.scratch_cursor());
    output_.backward_weight(p, merged_output(p));
  }
  if (!qkv_.trains(p)) return;
  Views d_rows;
  for (std::size_t i = 0; i < qkv_.projections().size(); ++i) d_rows[i] = p[d_rows_[i]];
  qkv_.backward_weight(p, norm_.input(p, x), used(d_rows));
}

}  // namespace trident
