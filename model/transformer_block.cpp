#include "model/transformer_block.h"

namespace trident {

void TransformerBlock::declare(ParamList& list) {
  attention_.declare(list);
  mlp_.declare(list);
}

void TransformerBlock::plan(UnitPlan& plan) {
  declare(plan.param_list());
  policy_ = plan.geometry().recompute;
  middle_ = plan.save(plan.geometry().compute, plan.geometry().activation_shape(hidden_));
  attention_.plan(plan);
  mlp_.plan(plan);
}

void TransformerBlock::forward(const LayerRun& run, ConstTensorView x, TensorView y) const {
  const TensorView middle = run.view(middle_);
  attention_.forward(run, x, middle);
  mlp_.forward(run, middle, y);
}

void TransformerBlock::recompute(const LayerRun& run, ConstTensorView x) const {
  switch (policy_) {
    case RecomputePolicy::kNone: return;
    case RecomputePolicy::kSelective: attention_.recompute_core(run); return;
    case RecomputePolicy::kFull: {
      const TensorView middle = run.view(middle_);
      attention_.forward(run, x, middle);
      mlp_.recompute(run, middle);
      return;
    }
  }
}

void TransformerBlock::backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const {
  mlp_.backward_input(run, run.view(middle_), d);
  attention_.backward_input(run, x, d);
}

void TransformerBlock::backward_weight(const LayerRun& run, ConstTensorView) const {
  mlp_.backward_weight(run);
  attention_.backward_weight(run);
}

}  // namespace trident
