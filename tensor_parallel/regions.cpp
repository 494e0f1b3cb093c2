#include "tensor_parallel/regions.h"

namespace trident {
namespace {

TensorView whole_sequence(Pass& p, ConstTensorView part) {
  return p.scratch(part.dtype(), p.geometry.full_shape(part.shape()[-1]));
}

}  // namespace

ConstTensorView enter_region(Pass& p, ConstTensorView x) {
  if (!p.geometry.shards_sequence()) return x;
  const TensorView full = whole_sequence(p, x);
  p.tensor.all_gather(p.stream, full, x);
  return full;
}

TensorView leave_buffer(Pass& p, TensorView y) { return p.geometry.shards_sequence() ? whole_sequence(p, y) : y; }

void leave_region(Pass& p, TensorView y, TensorView summand) {
  if (p.geometry.shards_sequence()) {
    p.tensor.reduce_scatter(p.stream, y, summand, ReduceOp::kSum);
  } else {
    p.tensor.all_reduce(p.stream, y, ReduceOp::kSum);
  }
}

TensorView KeptGradient::local(Pass& p, std::int64_t width) const {
  return rows_here(p, p.keep(full_, p.geometry.compute, p.geometry.full_shape(width)));
}

ConstTensorView KeptGradient::gather(Pass& p) const {
  const TensorView full = p[full_];
  if (p.geometry.shards_sequence()) p.tensor.all_gather(p.stream, full, rows_here(p, full));
  return full;
}

}  // namespace trident
