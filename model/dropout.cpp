#include "model/dropout.h"

#include <cstdint>

#include "core/philox.h"

namespace trident {

void Dropout::apply(LayerPass& p, TensorView out, ConstTensorView x) const {
  if (!drops(p)) {
    if (out.data() != x.data()) p.run(op::Convert{.out = out, .x = x});
    return;
  }
  // Distinct for every (step, unit, place): 2^20 units, 16 places.
  const std::uint64_t number =
      static_cast<std::uint64_t>(p.batch.step) << 24 | static_cast<std::uint64_t>(p.unit) << 4 | static_cast<std::uint64_t>(place_);
  const PhiloxKey key = random_key(p.geometry.seed, RandomPurpose::kDropout, number);
  p.run(op::Dropout{.out = out, .x = x, .samples = p.batch.samples,
                    .spec = {.probability = probability_, .key = {key[0], key[1]}, .sequence = p.geometry.sequence,
                             .position_offset = p.geometry.position_offset()}});
}

op::Summands Dropout::apply_before(LayerPass& p, TensorView y, const op::Summands& lacking) const {
  if (!drops(p)) return lacking;
  if (lacking.bias_data() != nullptr) p.run(op::AddBias{.x = as_rows(y), .bias = lacking.bias});
  apply(p, y, y);
  return {.residual = lacking.residual};
}

}  // namespace trident
