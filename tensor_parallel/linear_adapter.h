// Low-rank adapters beside linear layers that read one input: y_i += s z B_i^T with z = x A^T, W itself frozen.
//
// The A's of all modules are one matrix, one under the other, so that x is read once. Where a product of the base gives several
// modules' columns, their B's lie as blocks on a diagonal [C_i, sum r], made anew in scratch for every call, zero elsewhere.
// Over tp no sum is added: beside a column-parallel layer A is whole on every rank and B has the rows of W; beside a row-parallel
// layer A has the columns of W, B is whole, and what is added to y is a summand as x W^T is. DoRA then multiplies the columns of y,
// also of a summand; beside a row-parallel layer one sum of squares over tp says by what, whenever weights have changed.
//
// R rows, K input columns and C_i output columns of product i on this rank, r rank. Calls take scratch in the caller's scope.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "tensor_parallel/pass.h"

namespace trident {

// DoRA's scale of some columns of a product (Liu et al. 2024, arXiv 2402.09353, section 4.3, as PEFT computes it): y = c u with
// u = x (W + s B A)^T and c = m / n, n the lengths of the rows of W + s B A, which no gradient goes through. c and 1 / n are f32,
// and made when weights have changed. Here C columns and K columns of W and A on this rank.
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

class LinearAdapter {
 public:
  // One module's B beside one product: T[columns, rank], for columns first_column .. of y and first_rank .. of z.
  struct Block {
    ParamId b = {};
    std::size_t product = 0;
    std::int64_t first_column = 0, columns = 0, first_rank = 0, rank = 0;
    ParamId weight = {};                   // the product's W
    std::optional<DoraScale> dora = {};    // all blocks have one, or none
  };

  // Dropout of x beside the base's product; `place`: a number that no other dropout of the unit has.
  struct Dropout {
    float probability = 0;
    int place = 0;
    bool has_columns = false;  // x has this rank's columns of all
  };

  // a T[ranks, K]. `kind`: the part of the model that it is in.
  LinearAdapter(ActivationKind kind, ParamId a, std::int64_t ranks, double scale, const Dropout& dropout, std::vector<Block> blocks)
      : a_(a), ranks_(ranks), scale_(static_cast<float>(scale)), dropout_(dropout), blocks_(std::move(blocks)) {
    z_.kind = kind;
  }

  // With DoRA products come without their biases, and W and biases do not train.
  bool scales() const { return blocks_.front().dora.has_value(); }

  // DoRA's scales.
  void derive(Pass& p) const;
  // Adds to y[i] T[R, C_i], which has x W_i^T, from x T[R, K].
  void forward(Pass& p, ConstTensorView x, std::span<const TensorView> y) const;
  // The same without DoRA: the first call makes z, the second y[i] = `product` (x W_i^T) + z B_i^T + `residual`, if any, in
  // one kernel. Where there is no such kernel it calls `alone` for the product, adds z B_i^T by itself, and returns false.
  void make_inner(Pass& p, ConstTensorView x) const;
  bool multiply(Pass& p, const MatmulOperands& product, std::size_t i, ConstTensorView residual,
                FunctionRef<void()> alone) const;
  // Before the products that make d_x of d_y: d_y[i] T[R, C_i] become what goes through them.
  void begin_backward(Pass& p, std::span<const TensorView> d_y) const;
  // Adds to d_x T[R, K], from d_y[i] T[R, C_i].
  void backward_input(Pass& p, TensorView d_x, std::span<const TensorView> d_y) const;
  // The same with `product`, which makes d_x of all of d_y.
  void backward_input(Pass& p, const MatmulOperands& product, std::span<const TensorView> d_y) const;
  // Gradients of A and B (grad_mode).
  void backward_weight(Pass& p, ConstTensorView x, std::span<const TensorView> d_y) const;

 private:
  bool scales_dropped() const { return scales() && dropout_.probability > 0; }
  bool is_beside(std::size_t product) const;
  // The one block of a product that is dense by itself; null: it is not.
  const Block* dense_block(std::size_t product, std::int64_t columns) const;
  // T[C_i, ranks].
  ConstTensorView matrix(Pass& p, std::size_t product, std::int64_t columns) const;
  void drop(Pass& p, TensorView out, ConstTensorView x) const;
  // DoRA in `y` T[R, C_i] of a block, from dropped x and z.
  void scale_columns(Pass& p, const Block& block, TensorView y, ConstTensorView x, ConstTensorView z) const;
  // d_x T[R, K] (+)= the gradient of dropped x through W, which DoRA beside dropout multiplies by it once more.
  void backward_dropped(Pass& p, const Block& block, TensorView d_x, TensorView d_y, Accumulate accumulate) const;
  ConstTensorView rows_of_weight(Pass& p, const Block& block) const {
    return p.weight(block.weight).rows(block.first_column, block.columns);
  }
  void make_inner_of(Pass& p, ConstTensorView dropped) const;
  // d_z, from d_y.
  TensorView inner_gradient(Pass& p, std::span<const TensorView> d_y) const;
  // x after dropout, in scratch; without dropout x itself.
  ConstTensorView input(Pass& p, ConstTensorView x) const;

  ParamId a_;
  std::int64_t ranks_ = 0;
  float scale_ = 1;
  Dropout dropout_;
  std::vector<Block> blocks_;
  Saved z_{"an adapter's inner rows", ActivationKind::kMlp, LastUse::kW, RecomputeClass::kNever};  // T[R, ranks], s z
  BetweenIW d_z_{"the gradient of an adapter's inner rows"};                                       // T[R, ranks]
};

}  // namespace trident
