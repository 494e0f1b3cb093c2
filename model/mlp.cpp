#include "model/mlp.h"

#include <span>

namespace trident {

Mlp::Mlp(const ModelConfig& config, std::int64_t layer)
    : config_(config),
      names_(block_names(config, layer)),
      norm_(config, names_.mlp_norm, "the feed-forward norm's output", "the feed-forward part's output"),
      dropout_(config.residual_dropout, DropoutPlace::kMlp) {}

void Mlp::declare(ParamList& list) {
  list.follow(config_.tuning);
  const int tensor_degree = list.layout().degree;
  inner_ = config_.ffn / tensor_degree;
  norm_.declare(list);
  LinearKind kind{ActivationKind::kMlp, DropoutPlace::kMlpInputAdapter, config_.mlp_bias, names_.transposed_on_disk};
  up_ = declare_column_parallel(list, config_, kind, names_.mlp_input, {{names_.mlp_input, names_.mlp_input_parts, tensor_degree}});
  kind.dropout = DropoutPlace::kMlpOutputAdapter;
  down_ = declare_row_parallel(list, config_, kind, names_.mlp_output, config_.ffn);
}

void Mlp::expand(LayerPass& p, ConstTensorView x, std::optional<TensorView> act) const {
  const TensorView pre = p.save(pre_, p.geometry.compute, {p.geometry.full_rows(), up_.projections().front().output_columns});
  up_.forward(p, norm_.input(p, x), std::span(&pre, 1), gelu() ? act : std::nullopt);
  if (!gelu() && act) p.run(op::SwigluForward{.out = *act, .gate_up = pre});
}

void Mlp::forward(LayerPass& p, TensorView x, const op::Summands& lacking, TensorView y) const {
  norm_.enter(p, x, lacking);
  const ScratchScope scope(p.scratch_cursor());
  const TensorView act = p.scratch(p.geometry.compute, {p.geometry.full_rows(), inner_});
  expand(p, x, act);
  ConstTensorView residual = x;
  const bool joins = !norm_.is_after() && !dropout_.may_drop();
  const ConstTensorView bias =
      norm_.leave(p, y, [&](TensorView out) { return down_.forward(p, out, act, joins ? &residual : nullptr); });
  add(p, y, dropout_.apply_before(p, y, {.bias = bias, .residual = residual}));
}

void Mlp::recompute(LayerPass& p, TensorView x, const op::Summands& lacking) const {
  norm_.enter(p, x, lacking);
  if (!norm_.is_after() && !down_.scales()) return expand(p, x, std::nullopt);
  const ScratchScope scope(p.scratch_cursor());
  const TensorView act = p.scratch(p.geometry.compute, {p.geometry.full_rows(), inner_});
  expand(p, x, act);
  if (!norm_.is_after()) return down_.recompute(p, act);  // what DoRA scales
  // The norm's input and statistics.
  norm_.leave(p, p.scratch(x.dtype(), x.shape()), [&](TensorView out) { return down_.forward(p, out, act); });
}

void Mlp::backward_input(LayerPass& p, ConstTensorView x, TensorView d) const {
  const TensorView pre = p[pre_], d_pre = p.keep(d_pre_, pre.dtype(), pre.shape());
  dropout_.apply(p, down_.d_y(p), d);
  norm_.backward_leave(p, down_.d_y(p));
  const TensorView act = p.keep(act_, p.geometry.compute, {p.geometry.full_rows(), inner_});
  if (gelu()) {
    down_.backward_input_through_gelu(p, d_pre, act, pre);
  } else {
    down_.backward_input(p, act);
    p.run(op::SwigluBackward{.d_gate_up = d_pre, .d_out = act, .gate_up = pre});
  }
  const ScratchScope scope(p.scratch_cursor());
  const TensorView d_normed = p.scratch(x.dtype(), x.shape());
  up_.backward_input(p, d_normed, std::span(&d_pre, 1));
  norm_.backward_enter(p, d, d_normed, x);
}

void Mlp::backward_weight(LayerPass& p, ConstTensorView x) const {
  if (down_.trains(p)) down_.backward_weight(p, p[act_]);
  if (!up_.trains(p)) return;
  const TensorView d_pre = p[d_pre_];
  up_.backward_weight(p, norm_.input(p, x), std::span(&d_pre, 1));
}

}  // namespace trident
