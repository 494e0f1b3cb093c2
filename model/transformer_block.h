// A pre-norm transformer block: the attention phase, then the feed-forward phase. The phases are usable one by one, for schedules
// that interleave two micro-batches.
#pragma once

#include <cstdint>

#include "model/attention.h"
#include "model/layer.h"
#include "model/mlp.h"

namespace trident {

class TransformerBlock final : public Layer {
 public:
  TransformerBlock(const ModelConfig& config, std::int64_t layer) : attention_(config, layer), mlp_(config, layer) {}

  void declare(ParamList& list) override;

 private:
  void run_forward(LayerPass& p, ConstTensorView x, TensorView y) const override;
  void run_recompute(LayerPass& p, ConstTensorView x) const override;
  void run_backward_input(LayerPass& p, ConstTensorView x, TensorView d) const override;
  void run_backward_weight(LayerPass& p) const override;

  Attention attention_;
  Mlp mlp_;
  Saved middle_{"what lies between a block's phases", LastUse::kB};
};

}  // namespace trident
