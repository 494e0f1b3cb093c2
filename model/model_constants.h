// Tensors that a rank's layers read and nobody writes: rotation tables, and the weights of norms without parameters.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "device/arena.h"
#include "device/device.h"
#include "model/config/model_config.h"
#include "tensor_parallel/layer_plan.h"

namespace trident {

class ModelConstants {
 public:
  // Books the memory in `plan`. Until bind() the tensors have shapes and no memory: dry passes ask no more. `lengths`: whether all
  // sequences are as long as the geometry's, or some are shorter: longrope turns those of its original context by other angles; or
  // grow to that: dynamic turns each token by the length that its sequence has with it.
  enum class Lengths : std::uint8_t { kOne, kUpTo, kGrowing };
  ModelConstants(const ModelConfig& config, const LayerGeometry& geometry, ArenaPlan& plan, Lengths lengths = Lengths::kOne);
  // Grants the memory, which is the device's, and computes the tables.
  void bind(Arena& arena, Device& device);

  // f32 [S, P]: row p for position p; empty without rotation. But with kOne row first_row(tokens) + p, of a sequence of `tokens`.
  ConstTensorView rope_cos() const { return cos_; }
  ConstTensorView rope_sin() const { return sin_; }
  std::int64_t first_row(std::int64_t tokens) const { return tokens <= short_rows_ ? sequence_ : 0; }
  std::int64_t short_rows() const { return short_rows_; }  // tokens of the longest sequence that has rows of its own; 0: none has
  ConstTensorView ones() const { return ones_; }    // T [H]; only for norms without parameters
  ConstTensorView zeros() const { return zeros_; }

 private:
  ModelConfig config_;
  std::int64_t sequence_, short_rows_ = 0;
  DType compute_;
  bool growing_;
  bool rotates_, plain_norm_;
  BookedTensor cos_, sin_, ones_, zeros_;
};

}  // namespace trident
