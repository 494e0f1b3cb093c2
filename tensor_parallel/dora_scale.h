// DoRA's scale of some columns of a product (Liu et al. 2024, arXiv 2402.09353, section 4.3, as PEFT computes it): y = c u with
// u = x (W + s B A)^T and c = m / n, n the lengths of the rows of W + s B A, which no gradient goes through. c and 1 / n are f32,
// and made when weights have changed.
//
// R rows, C columns on this rank, K columns of W and A, r rank. Calls take scratch in a scope of their own.
#pragma once

#include <cstdint>

#include "tensor_parallel/pass.h"

namespace trident {

class DoraScale {
 public:
  // magnitude T[C].
  DoraScale(ActivationKind kind, ParamId magnitude) : magnitude_(magnitude) { u_.kind = kind; }

  // W T[C,K], B T[C,r] and A T[r,K]. `sums_ranks`: each rank has some columns of W and A, so that squares are summed over tp.
  struct Matrix {
    ConstTensorView w, b, a;
    float scale = 1;
    bool sums_ranks = false;
  };
  void derive(Pass& p, const Matrix& matrix) const;

  // Where u T[R,C] is written.
  TensorView u(Pass& p, std::int64_t rows, std::int64_t columns) const { return p.save(u_, p.geometry.compute, {rows, columns}); }
  // out T[R,C] = c x; x may be out.
  void scale(Pass& p, TensorView out, ConstTensorView x) const {
    p.run(op::ScaleColumns{.out = out, .x = x, .factor = p[factor_].rows(0, 1)});
  }
  // out T[R,C] (+)= (c - 1) x: what scaling adds to x.
  void scale_less_one(Pass& p, TensorView out, ConstTensorView x, Accumulate accumulate) const {
    p.run(op::ScaleColumns{.out = out, .x = x, .factor = p[factor_].rows(0, 1), .shift = -1, .accumulate = accumulate});
  }
  // The gradient of m (grad_mode), from that of y, d T[R,C].
  void backward_magnitude(Pass& p, ConstTensorView d) const;

 private:
  ParamId magnitude_;
  Saved u_{"rows before DoRA's scale", ActivationKind::kMlp, LastUse::kB};  // T[R,C]
  Derived factor_{"DoRA's scale of rows"};                                  // f32[2,C]: c, 1 / n
};

}  // namespace trident
