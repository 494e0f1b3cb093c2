// The last unit: final norm, logits over this rank's part of the vocabulary, cross-entropy. Its output is batch.loss.
// Saved: the norm's output and statistics, the logits (which become their gradient in place: in backward, or with one rank in
// training already in forward), the softmax statistics.
// In a cached pass there is no loss: the last tokens' logits go to CachedStep::logits. Logits are those before logit_softcap.
// With LayerGeometry::head_chunk logits are not saved but made a few rows at a time: in training by backward, which then leaves the
// losses, too, unless somebody weighs them before (MicroBatch::weigh).
#pragma once

#include "model/config/model_config.h"
#include "model/layer.h"
#include "model/norm.h"
#include "tensor_parallel/chunked_vocab_head.h"
#include "tensor_parallel/column_parallel_linear.h"
#include "tensor_parallel/vocab_parallel_cross_entropy.h"

namespace trident {

class Head final : public Layer {
 public:
  explicit Head(const ModelConfig& config);

  void declare(ParamList& list) override;

  // This rank's columns of the logits, T[S*B, padded V/t], after forward and before backward_input. Not with head_chunk; with one
  // rank not in training, whose forward turns them into their gradient.
  ConstTensorView logits(const LayerPass& p) const { return p[logits_]; }
  const Saved* saved_logits() const override { return &logits_; }

 private:
  void run_forward(LayerPass& p, ConstTensorView x, TensorView y) const override;
  void run_recompute(LayerPass&, ConstTensorView) const override {}
  void run_backward_input(LayerPass& p, ConstTensorView x, TensorView d) const override;
  void run_backward_weight(LayerPass& p, ConstTensorView x) const override;
  void run_backward(LayerPass& p, ConstTensorView x, TensorView d) const override;

  void last_logits(LayerPass& p, ConstTensorView x, const CachedStep& step) const;
  static bool is_chunked(const LayerPass& p) { return p.geometry.head_chunk > 0; }
  static bool backward_makes_losses(const LayerPass& p) { return p.batch.training && p.batch.weigh == nullptr; }
  void chunked_backward(LayerPass& p, ConstTensorView x, TensorView d, ChunkedVocabHead::Gradients wanted) const;

  ModelConfig config_;
  Norm norm_;
  ColumnParallelLinear projection_;
  VocabParallelCrossEntropy cross_entropy_;
  ChunkedVocabHead chunked_;  // instead of these two
  Saved normed_{"the final norm's output", ActivationKind::kNorms, LastUse::kW, RecomputeClass::kNever};
  Saved logits_{"logits", ActivationKind::kLoss, LastUse::kW, RecomputeClass::kNever};
};

}  // namespace trident
