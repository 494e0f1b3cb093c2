#include "model/dropout.h"

#include "core/philox.h"

namespace trident {

void Dropout::apply(LayerPass& p, TensorView out, ConstTensorView x) const {
  if (!drops(p)) {
    if (out.data() != x.data()) p.run(op::Convert{.out = out, .x = x});
    return;
  }
  const PhiloxKey key = dropout_key(p.geometry.seed, p.batch.step, p.unit, static_cast<int>(place_));
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
