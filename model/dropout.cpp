#include "model/dropout.h"

#include <cstdint>

namespace trident {

void Dropout::apply(LayerPass& p, TensorView out, ConstTensorView x) const {
  if (probability_ == 0.0f || !p.batch.training) {
    if (out.data() != x.data()) p.ops.convert(p.stream, out, x);
    return;
  }
  // Distinct for every (step, unit, place): 2^20 units, 16 places.
  const std::uint64_t number =
      static_cast<std::uint64_t>(p.batch.step) << 24 | static_cast<std::uint64_t>(p.unit) << 4 | static_cast<std::uint64_t>(place_);
  p.ops.dropout(p.stream, out, x,
                {.probability = probability_,
                 .key = random_key(p.geometry.seed, RandomPurpose::kDropout, number),
                 .sequence = p.geometry.sequence,
                 .position_offset = p.geometry.position_offset(),
                 .samples = p.batch.samples});
}

}  // namespace trident
