#include "tensor_parallel/linear_adapter.h"

#include <algorithm>

#include "core/philox.h"

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

bool LinearAdapter::is_beside(std::size_t product) const {
  return std::ranges::any_of(blocks_, [&](const Block& block) { return block.product == product; });
}

const LinearAdapter::Block* LinearAdapter::dense_block(std::size_t product, std::int64_t columns) const {
  const auto found = std::ranges::find(blocks_, product, &Block::product);
  return found->columns == columns && found->rank == ranks_ ? &*found : nullptr;
}

ConstTensorView LinearAdapter::matrix(Pass& p, std::size_t product, std::int64_t columns) const {
  if (const Block* const block = dense_block(product, columns)) return p.weight(block->b);
  const TensorView diagonal = p.scratch(p.geometry.compute, {columns, ranks_});
  p.run(op::FillZero{.out = diagonal});
  for (const Block& block : blocks_) {
    if (block.product != product) continue;
    p.write_columns(diagonal.rows(block.first_column, block.columns), p.weight(block.b), block.first_rank);
  }
  return diagonal;
}

void LinearAdapter::drop(Pass& p, TensorView out, ConstTensorView x) const {
  const PhiloxKey key = dropout_key(p.geometry.seed, p.draws.step, p.unit, dropout_.place);
  const std::int64_t columns = x.shape()[1];
  DropoutSpec spec{.probability = dropout_.probability, .key = {key[0], key[1]}, .sequence = p.geometry.sequence};
  if (dropout_.has_columns) {
    spec.all_columns = columns * p.geometry.tensor_degree;
    spec.first_column = columns * p.geometry.tensor_rank;
  }
  const Shape shape = p.geometry.full_shape(columns);
  p.run(op::Dropout{.out = out.reshape(shape), .x = x.reshape(shape), .samples = p.draws.samples, .spec = spec});
}

ConstTensorView LinearAdapter::input(Pass& p, ConstTensorView x) const {
  if (dropout_.probability == 0) return x;
  const TensorView dropped = p.scratch(x.dtype(), x.shape());
  if (!p.draws.drops) return x;
  drop(p, dropped, x);
  return dropped;
}

void LinearAdapter::derive(Pass& p) const {
  for (const Block& block : blocks_)
    if (block.dora)
      block.dora->derive(p, {.w = rows_of_weight(p, block), .b = p.weight(block.b),
                             .a = p.weight(a_).rows(block.first_rank, block.rank), .scale = scale_,
                             .sums_ranks = dropout_.has_columns});
}

void LinearAdapter::make_inner_of(Pass& p, ConstTensorView dropped) const {
  const TensorView z = p.save(z_, p.geometry.compute, {dropped.shape()[0], ranks_});
  MatmulOperands inner = p.product(z, dropped, Transpose::kNo, p.weight(a_), Transpose::kYes);
  inner.scale = scale_;
  p.matmul(inner);
  if (!p.adapts) p.run(op::FillZero{.out = z});  // between the same products, for which devices are prepared
}

void LinearAdapter::make_inner(Pass& p, ConstTensorView x) const {
  const ScratchScope dropped(p.scratch_cursor());
  make_inner_of(p, input(p, x));
}

bool LinearAdapter::multiply(Pass& p, const MatmulOperands& product, std::size_t i, ConstTensorView residual,
                             FunctionRef<void()> alone) const {
  if (!is_beside(i)) return alone(), false;
  const ScratchScope scope(p.scratch_cursor());
  const ConstTensorView z = p[z_], b = matrix(p, i, product.out.shape()[1]);
  if (p.ops.try_fused(p.stream, {.epilogue = Epilogue::kSummands, .product = product, .residual = residual,
                                 .inner = z, .outer = b}))
    return true;
  alone();
  p.matmul(product.out, z, Transpose::kNo, b, Transpose::kYes, Accumulate::kYes);
  return false;
}

void LinearAdapter::forward(Pass& p, ConstTensorView x, std::span<const TensorView> y) const {
  const ScratchScope dropped(p.scratch_cursor());
  const ConstTensorView in = input(p, x);
  make_inner_of(p, in);
  const TensorView z = p[z_];
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!is_beside(i)) continue;
    const ScratchScope scope(p.scratch_cursor());
    p.matmul(y[i], z, Transpose::kNo, matrix(p, i, y[i].shape()[1]), Transpose::kYes, Accumulate::kYes);
  }
  for (const Block& block : blocks_)
    if (block.dora) scale_columns(p, block, y[block.product], in, z);
}

void LinearAdapter::scale_columns(Pass& p, const Block& block, TensorView y, ConstTensorView x, ConstTensorView z) const {
  const TensorView u = block.dora->u(p, y.shape()[0], block.columns);
  const ScratchScope scope(p.scratch_cursor());
  const TensorView own = p.scratch(y.dtype(), u.shape());
  p.copy_columns(scales_dropped() ? own : u, y, block.first_column);
  if (scales_dropped()) {  // y = x W^T + c u - x' W^T of dropped x', where u = x' W^T + z B^T and y has x W^T + z B^T
    p.matmul(u, x, Transpose::kNo, rows_of_weight(p, block), Transpose::kYes);
    p.matmul(u, z, Transpose::kNo, p.weight(block.b), Transpose::kYes, Accumulate::kYes);
    block.dora->scale_less_one(p, own, u, Accumulate::kYes);
  } else {
    block.dora->scale(p, own, u);
  }
  if (p.adapts) p.write_columns(y, own, block.first_column);
}

void LinearAdapter::begin_backward(Pass& p, std::span<const TensorView> d_y) const {
  for (const Block& block : blocks_) {
    if (!block.dora || scales_dropped()) continue;
    const ScratchScope scope(p.scratch_cursor());
    const TensorView d_rows = d_y[block.product], d = p.scratch(d_rows.dtype(), {d_rows.shape()[0], block.columns});
    p.copy_columns(d, d_rows, block.first_column);
    block.dora->backward_magnitude(p, d);
    block.dora->scale(p, d, d);
    p.write_columns(d_rows, d, block.first_column);
  }
}

void LinearAdapter::backward_dropped(Pass& p, const Block& block, TensorView d_x, TensorView d_y, Accumulate accumulate) const {
  const ScratchScope scope(p.scratch_cursor());
  const Shape shape{d_y.shape()[0], block.columns};
  const TensorView d = p.scratch(d_y.dtype(), shape), difference = p.scratch(d_y.dtype(), shape);
  p.copy_columns(d, d_y, block.first_column);
  block.dora->backward_magnitude(p, d);
  block.dora->scale_less_one(p, difference, d, Accumulate::kNo);
  block.dora->scale(p, d, d);
  p.write_columns(d_y, d, block.first_column);
  p.matmul(d_x, difference, Transpose::kNo, rows_of_weight(p, block), Transpose::kNo, accumulate);
}

TensorView LinearAdapter::inner_gradient(Pass& p, std::span<const TensorView> d_y) const {
  const TensorView d_z = p.keep(d_z_, p.geometry.compute, {d_y.front().shape()[0], ranks_});
  Accumulate accumulate = Accumulate::kNo;
  for (std::size_t i = 0; i < d_y.size(); ++i) {
    if (!is_beside(i)) continue;
    const ScratchScope scope(p.scratch_cursor());
    MatmulOperands outer = p.product(d_z, d_y[i], Transpose::kNo, matrix(p, i, d_y[i].shape()[1]), Transpose::kNo);
    outer.scale = scale_;
    outer.accumulate = accumulate;
    p.matmul(outer);
    accumulate = Accumulate::kYes;
  }
  return d_z;
}

void LinearAdapter::backward_input(Pass& p, TensorView d_x, std::span<const TensorView> d_y) const {
  if (dropout_.probability == 0)
    return p.matmul(d_x, inner_gradient(p, d_y), Transpose::kNo, p.weight(a_), Transpose::kNo, Accumulate::kYes);
  if (!scales()) inner_gradient(p, d_y);
  const ScratchScope scope(p.scratch_cursor());
  const TensorView d_dropped = p.scratch(d_x.dtype(), d_x.shape());
  Accumulate accumulate = Accumulate::kNo;
  for (const Block& block : blocks_) {
    if (!block.dora) continue;
    backward_dropped(p, block, d_dropped, d_y[block.product], accumulate);
    accumulate = Accumulate::kYes;
  }
  const TensorView d_z = scales() ? inner_gradient(p, d_y) : p[d_z_];
  p.matmul(d_dropped, d_z, Transpose::kNo, p.weight(a_), Transpose::kNo, accumulate);
  drop(p, d_dropped, d_dropped);
  p.run(op::Add{.out = d_x, .a = d_x, .b = d_dropped});
}

void LinearAdapter::backward_input(Pass& p, const MatmulOperands& product, std::span<const TensorView> d_y) const {
  if (dropout_.probability > 0) {
    p.matmul(product);
    return backward_input(p, product.out, d_y);
  }
  const TensorView d_z = inner_gradient(p, d_y);
  if (p.ops.try_fused(p.stream, {.epilogue = Epilogue::kSummands, .product = product, .inner = d_z, .outer = p.weight(a_)}))
    return;
  p.matmul(product);
  p.matmul(product.out, d_z, Transpose::kNo, p.weight(a_), Transpose::kNo, Accumulate::kYes);
}

void LinearAdapter::backward_weight(Pass& p, ConstTensorView x, std::span<const TensorView> d_y) const {
  {
    const ScratchScope dropped(p.scratch_cursor());
    p.weight_gradient(a_, p[d_z_], input(p, x));
  }
  const ConstTensorView z = p[z_];
  for (std::size_t i = 0; i < d_y.size(); ++i) {
    if (!is_beside(i)) continue;
    const std::int64_t columns = d_y[i].shape()[1];
    if (const Block* const block = dense_block(i, columns)) {
      p.weight_gradient(block->b, d_y[i], z);
      continue;
    }
    const ScratchScope scope(p.scratch_cursor());
    const TensorView diagonal = p.scratch(DType::kF32, {columns, ranks_});
    p.matmul(diagonal, d_y[i], Transpose::kYes, z, Transpose::kNo);
    for (const Block& block : blocks_) {
      if (block.product != i) continue;
      const ScratchScope copies(p.scratch_cursor());
      const bool adds = p.grad_mode() == Accumulate::kYes;
      const TensorView gradient = p.grad(block.b), copy = p.scratch(DType::kF32, gradient.shape());
      p.copy_columns(adds ? copy : gradient, diagonal.rows(block.first_column, block.columns), block.first_rank);
      if (adds) p.run(op::AccumulateInto{.out = gradient, .x = copy});
    }
  }
}

}  // namespace trident
