#include "model/dropout.h"

#include <cstdint>

namespace trident {

void Dropout::apply(const LayerRun& run, TensorView out, ConstTensorView x) const {
  if (probability_ == 0.0f || !run.batch.training) {
    if (out.data() != x.data()) run.ops.convert(run.stream, out, x);
    return;
  }
  // Distinct for every (step, unit, place): 2^20 units, 16 places.
  const std::uint64_t number = static_cast<std::uint64_t>(run.batch.step) << 24 | static_cast<std::uint64_t>(run.unit) << 4 |
                               static_cast<std::uint64_t>(place_);
  run.ops.dropout(run.stream, out, x,
                  {.probability = probability_,
                   .key = random_key(geometry_.seed, RandomPurpose::kDropout, number),
                   .sequence = geometry_.sequence,
                   .position_offset = geometry_.position_offset(),
                   .samples = run.batch.samples});
}

}  // namespace trident
