#include "tensor_parallel/dora_scale.h"

#include <algorithm>

namespace trident {
namespace {

constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 20;  // of W + s B A, which is never whole
constexpr float kLeastSquare = 1e-30f;                           // a row of zeros has a scale of 0 and not of infinity

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

void DoraScale::derive(Pass& p, const Matrix& matrix) const {
  const std::int64_t columns = matrix.w.shape()[0];
  const TensorView factor = p.derive(factor_, DType::kF32, {2, columns});
  const TensorView c = factor.rows(0, 1), inverse = factor.rows(1, 1).flat();
  const ScratchScope scope(p.scratch_cursor());
  const TensorView squares = p.scratch(DType::kF32, {columns}), m = p.scratch(DType::kF32, {1, columns});
  take_squares(p, squares, matrix);
  p.run(op::Convert{.out = m, .x = p.weight(magnitude_)});
  // The norm of rows of one element gives 1 / n beside what it is not asked for.
  const TensorView normed = p.scratch(DType::kF32, {columns, 1});
  p.run(op::RmsNormApply{{.y = normed, .rstd = inverse, .x = m.reshape({columns, 1}), .weight = m.flat().range(0, 1),
                          .eps = kLeastSquare},
                         squares, 1});
  p.run(op::ScaleColumns{.out = c, .x = m, .factor = inverse});
}

void DoraScale::backward_magnitude(Pass& p, ConstTensorView d) const {
  const std::int64_t columns = d.shape()[1];
  const ScratchScope scope(p.scratch_cursor());
  const TensorView sums = p.scratch(DType::kF32, {1, columns});
  p.run(op::SumRows{.out = sums.flat(), .x = d, .accumulate = Accumulate::kNo, .times = p[u_]});
  p.run(op::ScaleColumns{.out = p.grad(magnitude_).reshape({1, columns}), .x = sums, .factor = p[factor_].rows(1, 1),
                         .accumulate = p.grad_mode()});
}

}  // namespace trident
