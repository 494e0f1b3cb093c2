#include "model/head.h"

#include <span>

#include "model/declare.h"
#include "model/param_names.h"

namespace trident {

Head::Head(const ModelConfig& config) : config_(config), norm_(block_norm(config, end_names(config).final_norm)) {}

void Head::declare(ParamList& list) {
  const EndNames names = end_names(config_);
  const int tensor_degree = list.layout().degree;
  const std::int64_t columns = padded_vocabulary(config_, tensor_degree) / tensor_degree;
  norm_.declare(list);
  const ParamId table = declare_vocabulary(list, config_, TiedEnd::kHead, names.head, names.head_tensor);
  projection_ = ColumnParallelLinear(config_.hidden, {{table, {}, columns}});
  cross_entropy_ = VocabParallelCrossEntropy(columns, config_.vocab_size);
}

void Head::plan(UnitPlan& plan) {
  declare(plan.param_list());
  const LayerGeometry& g = plan.geometry();
  norm_.plan(plan, g.local_rows(), RecomputeClass::kNever);
  normed_ = plan.save(g.compute, g.activation_shape(config_.hidden), RecomputeClass::kNever);
  logits_ = plan.save(g.compute, {g.full_rows(), projection_.projections().front().output_columns}, RecomputeClass::kNever);
  cross_entropy_.plan(plan);
  {
    const ScratchScope scope(plan.scratch_plan());
    projection_.plan_forward(plan);
  }
  {
    const ScratchScope scope(plan.scratch_plan());
    d_normed_ = plan.scratch(g.compute, g.activation_shape(config_.hidden));
    projection_.plan_backward_input(plan);
    norm_.plan_backward(plan);
  }
  const ScratchScope scope(plan.scratch_plan());
  projection_.plan_backward_weight(plan);
}

void Head::forward(const LayerRun& run, ConstTensorView x, TensorView) const {
  const TensorView normed = run.view(normed_), logits = run.view(logits_);
  norm_.forward(run, normed, x);
  projection_.forward(run, normed, std::span(&logits, 1));
  cross_entropy_.forward(run, run.batch.loss, logits, run.batch.targets);
}

void Head::backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const {
  const TensorView logits = run.view(logits_), d_normed = run.view(d_normed_);
  cross_entropy_.backward(run, logits, run.batch.targets, run.batch.gradient_scale);
  projection_.backward_input(run, d_normed, std::span(&logits, 1));
  norm_.backward(run, d, d_normed, x, Accumulate::kNo);
}

void Head::backward_weight(const LayerRun& run, ConstTensorView) const {
  const TensorView d_logits = run.view(logits_);
  projection_.backward_weight(run, run.view(normed_), std::span(&d_logits, 1));
}

}  // namespace trident
