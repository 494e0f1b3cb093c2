// Tensors that a rank's layers read and nobody writes: rotation tables, and the weights of norms without parameters.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "device/arena.h"
#include "device/device.h"
#include "model/model_config.h"
#include "tensor_parallel/layer_plan.h"

namespace trident {

class ModelConstants {
 public:
  // Books the memory in `plan`. Until bind() the tensors have shapes and no memory: dry passes ask no more.
  ModelConstants(const ModelConfig& config, const LayerGeometry& geometry, ArenaPlan& plan);
  // Grants the memory, which is the device's, and computes the tables.
  void bind(Arena& arena, Device& device);

  ConstTensorView rope_cos() const { return cos_; }  // f32 [S, P]: row p for position p; empty without rotation
  ConstTensorView rope_sin() const { return sin_; }
  ConstTensorView ones() const { return ones_; }    // T [H]; only for norms without parameters
  ConstTensorView zeros() const { return zeros_; }

 private:
  ModelConfig config_;
  std::int64_t sequence_;
  DType compute_;
  bool rotates_, plain_norm_;
  ArenaSlot cos_slot_, sin_slot_, ones_slot_, zeros_slot_;
  TensorView cos_, sin_, ones_, zeros_;
};

}  // namespace trident
