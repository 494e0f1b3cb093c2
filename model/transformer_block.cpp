#include "model/transformer_block.h"

namespace trident {

void TransformerBlock::declare(ParamList& list) {
  attention_.declare(list);
  mlp_.declare(list);
}

void TransformerBlock::run_derive(LayerPass& p) const {
  attention_.derive(p);
  mlp_.derive(p);
}

void TransformerBlock::run_forward(LayerPass& p, ConstTensorView x, TensorView y) const {
  const TensorView middle = p.save(middle_, x.dtype(), x.shape());
  mlp_.forward(p, middle, attention_.forward(p, x, middle), y);
}

void TransformerBlock::run_recompute(LayerPass& p, ConstTensorView x) const {
  switch (p.geometry.recompute) {
    case RecomputePolicy::kNone: return;
    case RecomputePolicy::kSelective: attention_.recompute_core(p); return;
    case RecomputePolicy::kFull: {
      const TensorView middle = p.save(middle_, x.dtype(), x.shape());
      mlp_.recompute(p, middle, attention_.forward(p, x, middle));
      return;
    }
  }
}

void TransformerBlock::run_backward_input(LayerPass& p, ConstTensorView x, TensorView d) const {
  mlp_.backward_input(p, p[middle_], d);
  attention_.backward_input(p, x, d);
}

void TransformerBlock::run_backward_weight(LayerPass& p, ConstTensorView x) const {
  mlp_.backward_weight(p, middle_.last_use == LastUse::kW ? p[middle_] : TensorView());
  attention_.backward_weight(p, x);
}

}  // namespace trident
