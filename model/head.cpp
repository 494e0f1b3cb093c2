#include "model/head.h"

#include <cstdint>
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
  chunked_ = ChunkedVocabHead(table, config_.hidden, columns, config_.vocab_size);
}

void Head::plan(UnitPlan& plan) {
  declare(plan.param_list());
  const LayerGeometry& g = plan.geometry();
  is_chunked_ = g.head_chunk > 0;
  norm_.plan(plan, g.local_rows(), RecomputeClass::kNever);
  normed_ = plan.save(g.compute, g.activation_shape(config_.hidden), RecomputeClass::kNever);
  if (is_chunked_) {
    plan_chunked(plan, g.head_chunk);
  } else {
    plan_whole(plan);
  }
}

void Head::plan_whole(UnitPlan& plan) {
  const LayerGeometry& g = plan.geometry();
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

void Head::plan_chunked(UnitPlan& plan, std::int64_t chunk) {
  const LayerGeometry& g = plan.geometry();
  chunked_.plan(plan, chunk);
  {
    const ScratchScope scope(plan.scratch_plan());
    chunked_.plan_forward(plan);
  }
  const ScratchScope scope(plan.scratch_plan());
  d_normed_ = plan.scratch(g.compute, g.activation_shape(config_.hidden));
  {
    const ScratchScope products(plan.scratch_plan());
    chunked_.plan_backward(plan);
  }
  norm_.plan_backward(plan);
}

void Head::forward(const LayerRun& run, ConstTensorView x, TensorView) const {
  const TensorView normed = run.view(normed_);
  norm_.forward(run, normed, x);
  if (is_chunked_) return chunked_.forward(run, run.batch.loss, normed, run.batch.targets);
  const TensorView logits = run.view(logits_);
  projection_.forward(run, normed, std::span(&logits, 1));
  cross_entropy_.forward(run, run.batch.loss, logits, run.batch.targets);
}

void Head::backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const {
  if (is_chunked_) return chunked_backward(run, x, d, ChunkedVocabHead::Gradients::kInput);
  const TensorView logits = run.view(logits_), d_normed = run.view(d_normed_);
  cross_entropy_.backward(run, logits, 0, run.batch.targets, run.batch.gradient_scale);
  projection_.backward_input(run, d_normed, std::span(&logits, 1));
  norm_.backward(run, d, d_normed, x, Accumulate::kNo);
}

void Head::backward_weight(const LayerRun& run, ConstTensorView) const {
  if (is_chunked_) return chunked_.backward(run, TensorView(), run.view(normed_), run.batch.targets, run.batch.gradient_scale,
                                            ChunkedVocabHead::Gradients::kWeight);
  const TensorView d_logits = run.view(logits_);
  projection_.backward_weight(run, run.view(normed_), std::span(&d_logits, 1));
}

void Head::backward(const LayerRun& run, ConstTensorView x, TensorView d) const {
  if (is_chunked_) return chunked_backward(run, x, d, ChunkedVocabHead::Gradients::kBoth);
  Layer::backward(run, x, d);
}

void Head::chunked_backward(const LayerRun& run, ConstTensorView x, TensorView d, ChunkedVocabHead::Gradients wanted) const {
  const TensorView d_normed = run.view(d_normed_);
  chunked_.backward(run, d_normed, run.view(normed_), run.batch.targets, run.batch.gradient_scale, wanted);
  norm_.backward(run, d, d_normed, x, Accumulate::kNo);
}

ConstTensorView Head::logits(const LayerRun& run) const {
  TRIDENT_CHECK(!is_chunked_, "logits of all rows are not kept");
  return run.view(logits_);
}

}  // namespace trident
