// A backend provides operations (device/operations.h and device/operations_layers.h have their contracts) on a stream, and
// matmuls with the operations that follow them, in one kernel or several.
//
// Letters: R rows (= S*B tokens, row s*B+b), H hidden width, F feed-forward width, V vocabulary columns held here, B micro-batch,
// S sequence, N query heads, K key/value heads, D head width.
//
// Rules for every operation
// - Views are dense and row-major. Outputs do not alias inputs unless the comment says "in place".
// - "T" is the compute dtype: f32, bf16 or f16, the same for every T operand of a call. Arithmetic is f32; results are
//   rounded once.
// - Outputs are overwritten unless Accumulate::kYes is passed or the comment says "adds".
// - Nothing is allocated: products are announced by prepare_matmul() or prepare_fused() while planning, workspaces are arguments.
// - Results are a function of the operands alone: same bits for the same call, whatever ran before, on one instruction set.
// - Shape or dtype mistakes are TRIDENT_CHECK failures (InternalError).
#pragma once

#include <cstdint>

#include "device/op_values.h"

namespace trident {

class OperationRef;
class Stream;

class Ops {
 public:
  virtual ~Ops() = default;

  // ops.run(stream, op::Add{.out = sum, .a = x, .b = y});
  virtual void run(Stream& stream, OperationRef operation) = 0;

  // Announces an op::Matmul (idempotent); returns its workspace in bytes. Called while planning.
  virtual std::int64_t prepare_matmul(const MatmulShape& shape) = 0;
  // The same of op::AttentionForward and op::AttentionBackward.
  virtual std::int64_t attention_workspace(const AttentionShape& shape) = 0;
  // The same of op::CachedAttention; `shape` is causal, with offsets of 0.
  virtual std::int64_t cached_attention_workspace(const AttentionShape& shape) = 0;

  // Whether attention reads and writes heads as rows, too, and turns them on the way (op::AttentionForward).
  virtual bool attends_by_rows() const = 0;

  // ---- products and what follows them ----------------------------------------------------------------------------------------
  // In one kernel where the backend has it (results of T are then rounded once, not after the product too), else the operations
  // named, one after the other. Announced by prepare_fused(); products are of T, into T unless said otherwise.
  //
  // matmul, add_bias: product.out T[M,N] = op(a) op(b) + bias T[N] in every row.
  void matmul_bias(Stream& stream, const MatmulOperands& product, ConstTensorView bias);
  // matmul, gelu_forward with the bias: product.out T[M,N] = op(a) op(b) + bias T[N], activation T[M,N] = gelu(that).
  void matmul_bias_gelu(Stream& stream, const MatmulOperands& product, ConstTensorView bias, TensorView activation);
  // matmul, gelu_backward: d_pre T[M,N] = op(a) op(b) * gelu'(pre T[M,N]), product.out T[M,N] = gelu(pre).
  void matmul_gelu_backward(Stream& stream, const MatmulOperands& product, ConstTensorView pre, TensorView d_pre);
  // sum_rows, matmul: product.out f32[M,N] (+)= a^T b, d_bias f32[M] (+)= column sums of a T[K,M], both as product.accumulate says;
  // product.transpose_a is kYes.
  void matmul_bias_gradient(Stream& stream, const MatmulOperands& product, TensorView d_bias);
  // Announces one of these (idempotent): its workspace, and whether it will be one kernel. Called while planning.
  // `rank`: R of kSummands.
  virtual PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue, std::int64_t /*rank*/ = 0) {
    return {prepare_matmul(shape), false};
  }
  // For those four, for kSummands, and for Ops made of others. Does it in one, or does nothing and returns false.
  virtual bool try_fused(Stream&, const FusedMatmul&) { return false; }
};

}  // namespace trident
