#include "model/mlp.h"

#include <cmath>
#include <cstdint>
#include <span>

namespace trident {

Mlp::Mlp(const ModelConfig& config, std::int64_t layer)
    : config_(config),
      names_(block_names(config, layer)),
      norm_(block_norm(config, names_.mlp_norm)),
      dropout_(config.residual_dropout, DropoutPlace::kMlp) {}

void Mlp::declare(ParamList& list) {
  const int tensor_degree = list.layout().degree;
  inner_ = config_.ffn / tensor_degree;
  norm_.declare(list);
  const LinearIds up = declare_row_sharded(list, {.name = names_.mlp_input,
                                                  .parts = names_.mlp_input_parts,
                                                  .input_columns = config_.hidden,
                                                  .shards = tensor_degree,
                                                  .bias = config_.mlp_bias,
                                                  .transposed_on_disk = names_.transposed_on_disk,
                                                  .init_std = static_cast<float>(config_.init_std)});
  const auto parts = static_cast<std::int64_t>(names_.mlp_input_parts.size());
  up_ = ColumnParallelLinear(config_.hidden, {{up.weight, up.bias, parts * inner_}});
  const double layers = static_cast<double>(config_.layers);
  const LinearIds down = declare_column_sharded(list, {.name = names_.mlp_output,
                                                       .output_rows = config_.hidden,
                                                       .input_columns = config_.ffn,
                                                       .bias = config_.mlp_bias,
                                                       .transposed_on_disk = names_.transposed_on_disk,
                                                       .init_std = static_cast<float>(config_.init_std / std::sqrt(2 * layers))});
  down_ = RowParallelLinear(inner_, config_.hidden, down.weight, down.bias);
}

void Mlp::plan(UnitPlan& plan) {
  const LayerGeometry& g = plan.geometry();
  const Shape pre{g.full_rows(), up_.projections().front().output_columns}, act{g.full_rows(), inner_};
  dropout_.plan(plan);
  norm_.plan(plan, g.local_rows(), RecomputeClass::kBlock);
  normed_ = plan.save(g.compute, g.activation_shape(config_.hidden));
  pre_ = plan.save(g.compute, pre);
  d_pre_ = plan.keep(g.compute, pre);
  const bool gelu = config_.activation == Activation::kGeluTanh;
  {
    const ScratchScope scope(plan.scratch_plan());
    act_ = plan.scratch(g.compute, act);  // made while the input of the first product is there
    {
      const ScratchScope first_product(plan.scratch_plan());
      if (gelu) up_.plan_forward_gelu(plan);
      else up_.plan_forward(plan);
    }
    down_.plan_forward(plan);
  }
  {
    const ScratchScope scope(plan.scratch_plan());
    d_act_ = plan.scratch(g.compute, act);
    if (gelu) down_.plan_backward_input_gelu(plan);
    else down_.plan_backward_input(plan);
  }
  {
    const ScratchScope scope(plan.scratch_plan());
    d_normed_ = plan.scratch(g.compute, g.activation_shape(config_.hidden));
    up_.plan_backward_input(plan);
    norm_.plan_backward(plan);
  }
  {
    const ScratchScope scope(plan.scratch_plan());
    act_weight_ = plan.scratch(g.compute, act);
    down_.plan_backward_weight(plan);
  }
  const ScratchScope scope(plan.scratch_plan());
  up_.plan_backward_weight(plan);
}

void Mlp::activate(const LayerRun& run, TensorView out) const {
  if (config_.activation == Activation::kSwiGlu) {
    run.ops.swiglu_forward(run.stream, out, run.view(pre_));
  } else {
    run.ops.gelu_forward(run.stream, out, run.view(pre_));
  }
}

void Mlp::recompute(const LayerRun& run, ConstTensorView x) const {
  const TensorView normed = run.view(normed_), pre = run.view(pre_);
  norm_.forward(run, normed, x);
  up_.forward(run, normed, std::span(&pre, 1));
}

void Mlp::forward(const LayerRun& run, ConstTensorView x, TensorView y) const {
  const TensorView act = run.view(act_);
  if (config_.activation == Activation::kGeluTanh) {
    const TensorView normed = run.view(normed_);
    norm_.forward(run, normed, x);
    up_.forward_gelu(run, normed, run.view(pre_), act);
  } else {
    recompute(run, x);
    activate(run, act);
  }
  down_.forward(run, y, act);
  dropout_.apply(run, y, y);
  run.ops.add(run.stream, y, y, x);
}

void Mlp::backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const {
  const TensorView d_act = run.view(d_act_), d_pre = run.view(d_pre_), d_normed = run.view(d_normed_);
  dropout_.apply(run, down_.d_y(run), d);
  if (config_.activation == Activation::kGeluTanh) {
    down_.backward_input_gelu(run, d_pre, d_act, run.view(pre_));
  } else {
    down_.backward_input(run, d_act);
    run.ops.swiglu_backward(run.stream, d_pre, d_act, run.view(pre_));
  }
  up_.backward_input(run, d_normed, std::span(&d_pre, 1));
  norm_.backward(run, d, d_normed, x, Accumulate::kYes);
}

void Mlp::backward_weight(const LayerRun& run) const {
  const TensorView act = run.view(act_weight_), d_pre = run.view(d_pre_);
  activate(run, act);
  down_.backward_weight(run, act);
  up_.backward_weight(run, run.view(normed_), std::span(&d_pre, 1));
}

}  // namespace trident
