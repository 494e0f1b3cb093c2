#include "tensor_parallel/dora_scale.h"

#include <algorithm>
#include <cstdint>

namespace trident {
namespace {

constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 20;  // of W + s B A, which is never whole
constexpr float kLeastSquare = 1e-30f;                           // a row of zeros has a scale of 0 and not of infinity

// f32 [n] each, in the caller's scope. With squares of 0 and eps 1 the operation of a norm divides by 1: it multiplies columns.
struct UnitRows {
  TensorView zeros, ones;
};
UnitRows unit_rows(Pass& p, std::int64_t n) {
  const UnitRows rows{p.scratch(DType::kF32, {n}), p.scratch(DType::kF32, {n})};
  p.run(op::FillZero{.out = rows.zeros});
  const ScratchScope scope(p.scratch_cursor());
  const TensorView x = rows.zeros.reshape({n, 1}), y = p.scratch(DType::kF32, {n, 1});
  p.run(op::RmsNormApply{{.y = y, .rstd = rows.ones, .x = x, .weight = rows.zeros.range(0, 1), .eps = 1}, rows.zeros, 1});
  return rows;
}

// out [R,C] = x times factor [C], all of one dtype.
void multiply_columns(Pass& p, TensorView out, ConstTensorView x, ConstTensorView factor) {
  const ScratchScope scope(p.scratch_cursor());
  const std::int64_t rows = x.shape()[0];
  const TensorView zeros = p.scratch(DType::kF32, {rows}), ones = p.scratch(DType::kF32, {rows});
  p.run(op::FillZero{.out = zeros});
  p.run(op::RmsNormApply{{.y = out, .rstd = ones, .x = x, .weight = factor, .eps = 1}, zeros, 1});
}

// A vector in another dtype, in the caller's scope.
TensorView converted(Pass& p, ConstTensorView x, DType dtype) {
  const TensorView out = p.scratch(dtype, {x.num_elements()});
  p.run(op::Convert{.out = out, .x = x.flat()});
  return out;
}

// Squares f32[C] of the lengths of the rows of W + s B A.
void take_squares(Pass& p, TensorView squares, const DoraScale::Matrix& matrix) {
  const std::int64_t rows = matrix.w.shape()[0], columns = matrix.w.shape()[1];
  const std::int64_t at_once = std::clamp<std::int64_t>(kElementsAtOnce / columns, 1, rows);
  for (std::int64_t first = 0; first < rows; first += at_once) {
    const ScratchScope scope(p.scratch_cursor());
    const std::int64_t n = std::min(at_once, rows - first);
    const TensorView sum = p.scratch(matrix.w.dtype(), {n, columns});
    p.run(op::Convert{.out = sum, .x = matrix.w.rows(first, n)});
    MatmulOperands product = p.product(sum, matrix.b.rows(first, n), Transpose::kNo, matrix.a, Transpose::kNo);
    product.scale = matrix.scale;
    product.accumulate = Accumulate::kYes;
    p.matmul(product);
    p.run(op::RmsNormSquares{.squares = squares.range(first, n), .x = sum});
  }
  if (matrix.sums_ranks) p.tensor.all_reduce(p.stream, squares, ReduceOp::kSum);
}

}  // namespace

void DoraScale::take_factor(Pass& p, TensorView factor, const Matrix& matrix) const {
  const std::int64_t columns = factor.shape()[1];
  const ScratchScope scope(p.scratch_cursor());
  const TensorView squares = p.scratch(DType::kF32, {columns});
  take_squares(p, squares, matrix);
  const TensorView m = converted(p, p.weight(magnitude_), DType::kF32), one = unit_rows(p, 1).ones;
  p.run(op::RmsNormApply{{.y = factor.rows(0, 1).reshape({columns, 1}), .rstd = factor.rows(1, 1).flat(),
                          .x = m.reshape({columns, 1}), .weight = one, .eps = kLeastSquare},
                         squares, 1});
}

void DoraScale::forward(Pass& p, TensorView out, TensorView u, const Matrix& matrix) const {
  const bool again = p.kind() == PassKind::kRecompute;
  const TensorView factor = again ? p[factor_] : p.save(factor_, DType::kF32, {2, u.shape()[1]});
  if (!again) take_factor(p, factor, matrix);
  const ScratchScope scope(p.scratch_cursor());
  multiply_columns(p, out, u, converted(p, factor.rows(0, 1), u.dtype()));
}

void DoraScale::backward(Pass& p, TensorView d) const {
  const TensorView u = p[u_], factor = p[factor_];
  const std::int64_t columns = u.shape()[1];
  const ScratchScope scope(p.scratch_cursor());
  const UnitRows unit = unit_rows(p, u.shape()[0]);
  const TensorView d_factor = p.scratch(DType::kF32, {columns}), d_magnitude = p.scratch(DType::kF32, {columns});
  p.run(op::RmsNormApplyBackward{{.d_x = d, .d_weight = d_factor, .d_y = d, .x = u,
                                  .weight = converted(p, factor.rows(0, 1), u.dtype()), .rstd = unit.ones,
                                  .accumulate_x = Accumulate::kNo, .accumulate_weight = Accumulate::kNo},
                                 unit.zeros, 1});
  const bool adds = p.grad_mode() == Accumulate::kYes;
  const TensorView gradient = p.grad(magnitude_);
  multiply_columns(p, (adds ? d_magnitude : gradient).reshape({1, columns}), d_factor.reshape({1, columns}),
                   factor.rows(1, 1).flat());
  if (adds) p.run(op::AccumulateInto{.out = gradient, .x = d_magnitude});
}

void negate(Pass& p, TensorView out, ConstTensorView x) {
  const ScratchScope scope(p.scratch_cursor());
  const std::int64_t columns = x.shape()[1];
  const TensorView ones = converted(p, unit_rows(p, columns).ones, x.dtype()).reshape({columns, 1});
  const TensorView minus = p.scratch(x.dtype(), {columns, 1});
  MatmulOperands product = p.product(minus, ones, Transpose::kNo, ones.rows(0, 1), Transpose::kNo);
  product.scale = -1;
  p.matmul(product);
  multiply_columns(p, out, x, minus.flat());
}

}  // namespace trident
