// A transformer block: the attention phase, then the feed-forward phase, each with its norm before or after it. The phases are
// usable one by one, for schedules that interleave two micro-batches.
#pragma once

#include <cstdint>

#include "model/attention.h"
#include "model/layer.h"
#include "model/mlp.h"

namespace trident {

class TransformerBlock final : public Layer {
 public:
  TransformerBlock(const ModelConfig& config, std::int64_t layer)
      : attention_(config, layer),
        mlp_(config, layer),
        middle_{"what lies between a block's phases", ActivationKind::kNorms,
                // The feed-forward products' input where no norm comes before them.
                config.norm_placement == NormPlacement::kAfter ? LastUse::kW : LastUse::kB} {}

  void declare(ParamList& list) override;
  LastUse input_last_use() const override { return middle_.last_use; }  // the attention phase's, as the other phase's

 private:
  void run_derive(LayerPass& p) const override;
  void run_forward(LayerPass& p, ConstTensorView x, TensorView y) const override;
  void run_recompute(LayerPass& p, ConstTensorView x) const override;
  void run_backward_input(LayerPass& p, ConstTensorView x, TensorView d) const override;
  void run_backward_weight(LayerPass& p, ConstTensorView x) const override;

  Attention attention_;
  Mlp mlp_;
  Saved middle_;
};

}  // namespace trident
