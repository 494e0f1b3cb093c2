// Rotation tables of single sequences, for a scaling that turns each length by angles of its own (dynamic).
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor_view.h"
#include "device/arena.h"
#include "device/device.h"
#include "model/config/model_config.h"

namespace trident {

class SequenceRotations {
 public:
  // `tables` of `rows` rows each, or none where sequences of up to `rows` tokens all turn alike.
  SequenceRotations(const ModelConfig& config, std::int64_t tables, std::int64_t rows, ArenaPlan& plan);
  void bind(Arena& arena);

  bool any() const { return tables_ > 0; }
  // Makes a table that of a sequence of `tokens` tokens, unless it is; on the compute stream. Rows behind those are undefined.
  void set(std::int64_t table, std::int64_t tokens, Device& device);
  // f32 [count * rows, P], of the tables from `first` on.
  ConstTensorView cos(std::int64_t first, std::int64_t count) const { return cos_.rows(first * rows_, count * rows_); }
  ConstTensorView sin(std::int64_t first, std::int64_t count) const { return sin_.rows(first * rows_, count * rows_); }

 private:
  ModelConfig config_;
  std::int64_t tables_ = 0, rows_ = 0;
  std::vector<std::int64_t> tokens_;  // of each table's sequence
  BookedTensor cos_, sin_;
};

}  // namespace trident
