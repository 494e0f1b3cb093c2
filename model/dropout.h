// Dropout on the residual stream: which elements are dropped is a pure function of (seed, step, unit, place) and the element's
// global (sample, position, channel), so it does not depend on the layout, and backward draws the same mask again.
#pragma once

#include <cstdint>

#include "model/layer.h"

namespace trident {

enum class DropoutPlace : std::uint8_t {
  kEmbedding, kAttention, kMlp,
  kQueryAdapter, kAttentionOutputAdapter = kQueryAdapter + 3,  // beside queries, keys and values; and so on
  kMlpInputAdapter, kMlpOutputAdapter = kMlpInputAdapter + 2,
};

class Dropout {
 public:
  Dropout(double probability, DropoutPlace place) : probability_(static_cast<float>(probability)), place_(place) {}

  bool may_drop() const { return probability_ > 0.0f; }
  // out T[S',B,H] = x with its mask, scaled; a copy where there is no dropout. out may be x. The same call on a gradient is the
  // backward.
  void apply(LayerPass& p, TensorView out, ConstTensorView x) const;
  // y T[S',B,H] still lacks `lacking`; returns what it lacks after its mask.
  op::Summands apply_before(LayerPass& p, TensorView y, const op::Summands& lacking) const;

 private:
  bool drops(const LayerPass& p) const { return probability_ > 0.0f && p.batch.training; }

  float probability_;
  DropoutPlace place_;
};

}  // namespace trident
