// Where a layer goes from the residual stream into its tensor-parallel part and back.
//
// Outside, activations are whole on every rank (or split over the sequence, under sequence parallelism); inside, every rank sees
// the whole sequence and holds a part of the width. Megatron's conjugate pairs (Shoeybi et al. 2019, arXiv 1909.08053, section 3;
// Korthikanti et al. 2022, arXiv 2205.05198, section 4.2) are two functions here, each the other's backward:
//
//                 sequence parallel                      not
//   enter         all_gather over the sequence           identity        ("g"  / "f" forward)
//   leave         reduce_scatter over the sequence       all_reduce      ("g-" / "g" forward)
//
// A tensor T[S, B, W] gathered over the sequence is contiguous: rank r's rows are [r*S/t, (r+1)*S/t).
#pragma once

#include <cstdint>

#include "tensor_parallel/pass.h"

namespace trident {

// The whole-sequence view of `x` [S',B,W]: gathered into scratch [S,B,W], in the caller's scope, or x itself.
ConstTensorView enter_region(Pass& p, ConstTensorView x);

// A sum over ranks: each rank writes its summand to leave_buffer(p, y), [S,B,W] (scratch in the caller's scope, or y), then calls
// leave_region() with it, which leaves the sum of all ranks (sequence parallel: of its rows) in y [S',B,W].
TensorView leave_buffer(Pass& p, TensorView y);
void leave_region(Pass& p, TensorView y, TensorView summand);

// A gradient [S',B,W] that is kept and needed over the whole sequence: written by its owner to local(), completed by gather().
class KeptGradient {
 public:
  // This rank's rows, to be written; `width` is W.
  TensorView local(Pass& p, std::int64_t width) const;
  // The same once it was made.
  TensorView local(Pass& p) const { return rows_here(p, p[full_]); }
  // Gathers the other ranks' rows (sequence parallel); returns [S,B,W].
  ConstTensorView gather(Pass& p) const;
  TensorView full(Pass& p) const { return p[full_]; }

 private:
  static TensorView rows_here(const Pass& p, TensorView full) {
    return full.rows(p.geometry.position_offset(), p.geometry.local_sequence());
  }

  BetweenIW full_{"the gradient of a layer's output"};
};

}  // namespace trident
