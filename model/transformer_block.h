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
  TransformerBlock(const ModelConfig& config, std::int64_t layer)
      : attention_(config, layer), mlp_(config, layer), hidden_(config.hidden) {}

  void declare(ParamList& list) override;
  void plan(UnitPlan& plan) override;
  void forward(const LayerRun& run, ConstTensorView x, TensorView y) const override;
  void recompute(const LayerRun& run, ConstTensorView x) const override;
  void backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const override;
  void backward_weight(const LayerRun& run, ConstTensorView x) const override;

  const Attention& attention() const { return attention_; }
  const Mlp& mlp() const { return mlp_; }
  // What lies between the phases: T[S',B,H], saved.
  TensorView middle(const LayerRun& run) const { return run.view(middle_); }

 private:
  Attention attention_;
  Mlp mlp_;
  std::int64_t hidden_;
  RecomputePolicy policy_ = RecomputePolicy::kNone;
  RegionTensor middle_;
};

}  // namespace trident
