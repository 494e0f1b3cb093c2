// DoRA's scale of some columns of a product (Liu et al. 2024, arXiv 2402.09353, section 4.3, as PEFT computes it): y = c u with
// u = x (W + s B A)^T and c = m / n, n the lengths of the rows of W + s B A, which no gradient goes through.
//
// R rows, C columns on this rank, K columns of W and A, r rank. Calls take scratch in a scope of their own.
#pragma once

#include <cstdint>

#include "tensor_parallel/pass.h"

namespace trident {

class DoraScale {
 public:
  // magnitude T[C].
  DoraScale(ActivationKind kind, ParamId magnitude) : magnitude_(magnitude) { u_.kind = factor_.kind = kind; }

  // W T[C,K], B T[C,r] and A T[r,K]. `sums_ranks`: each rank has some columns of W and A, so that squares are summed over tp.
  struct Matrix {
    ConstTensorView w, b, a;
    float scale = 1;
    bool sums_ranks = false;
  };

  // Where u T[R,C] is written, before forward().
  TensorView u(Pass& p, std::int64_t rows, std::int64_t columns) const { return p.save(u_, p.geometry.compute, {rows, columns}); }
  // out T[R,C] = c u; c is kept, so that recomputation needs no sum over ranks.
  void forward(Pass& p, TensorView out, TensorView u, const Matrix& matrix) const;
  // d T[R,C] is the gradient of y, and becomes that of u; that of m is written (grad_mode).
  void backward(Pass& p, TensorView d) const;

 private:
  // Writes c and 1 / n.
  void take_factor(Pass& p, TensorView factor, const Matrix& matrix) const;

  ParamId magnitude_;
  Saved u_{"rows before DoRA's scale", ActivationKind::kMlp, LastUse::kB};                            // T[R,C]
  Saved factor_{"DoRA's scale of rows", ActivationKind::kMlp, LastUse::kB, RecomputeClass::kNever};   // f32[2,C]: c, 1 / n
};

// out T[R,C] = -x.
void negate(Pass& p, TensorView out, ConstTensorView x);

}  // namespace trident
