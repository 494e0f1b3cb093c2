// The operations a backend provides, on `stream`; those on products and what follows them are one kernel or several.
//
// Letters: R rows (= S*B tokens, row s*B+b), H hidden width, F feed-forward width, V vocabulary columns held here, B micro-batch,
// S sequence, N query heads, K key/value heads, D head width.
//
// Rules for every operation
// - Views are dense and row-major. Outputs do not alias inputs unless the comment says "in place".
// - "T" is the compute dtype: f32, bf16 or f16, the same for every T operand of a call. Arithmetic is f32; results are rounded
// once.
// - Outputs are overwritten unless Accumulate::kYes is passed or the comment says "adds".
// - Nothing is allocated: products are announced by prepare_matmul() or prepare_fused() while planning, workspaces are arguments.
// - Results are a function of the operands alone: same bits for the same call, whatever ran before, on one instruction set.
// - Shape or dtype mistakes are TRIDENT_CHECK failures (InternalError).
#pragma once

#include <cstdint>

#include "device/op_values.h"
#include "device/operations.h"
#include "device/stream.h"

namespace trident {

class Ops {
 public:
  virtual ~Ops() = default;

  // Carries out what one of the functions below was called with.
  virtual void run(Stream& stream, OperationRef operation) = 0;

  // ---- matrix products ----------------------------------------------------------------------------------------------------
  // Announces a product (idempotent); returns its workspace in bytes. Called while planning.
  virtual std::int64_t prepare_matmul(const MatmulShape& shape) = 0;
  // `workspace`: u8, at least what prepare_matmul returned for this shape.
  void matmul(Stream& stream, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
              Accumulate accumulate, TensorView workspace) {
    matmul(stream, MatmulOperands{out, a, transpose_a, b, transpose_b, accumulate, workspace});
  }
  void matmul(Stream& stream, const MatmulOperands& operands) { call(stream, op::Matmul{operands}); }

  // ---- products and what follows them ----------------------------------------------------------------------------------------
  // In one kernel where the backend has it (results of T are then rounded once, not after the product too), else the operations
  // named, one after the other. Announced by prepare_fused(); products are of T, into T unless said otherwise.
  //
  // matmul, add_bias: product.out T[M,N] = op(a) op(b) + bias T[N] in every row.
  void matmul_bias(Stream& stream, const MatmulOperands& product, ConstTensorView bias);
  // matmul, add_bias, gelu_forward: product.out T[M,N] = op(a) op(b) + bias T[N], activation T[M,N] = gelu(that).
  void matmul_bias_gelu(Stream& stream, const MatmulOperands& product, ConstTensorView bias, TensorView activation);
  // matmul, gelu_backward: d_pre T[M,N] = op(a) op(b) * gelu'(pre T[M,N]). product.out T[M,N] is scratch: left undefined.
  void matmul_gelu_backward(Stream& stream, const MatmulOperands& product, ConstTensorView pre, TensorView d_pre);
  // sum_rows, matmul: product.out f32[M,N] (+)= a^T b, d_bias f32[M] (+)= column sums of a T[K,M], both as product.accumulate says;
  // product.transpose_a is kYes.
  void matmul_bias_gradient(Stream& stream, const MatmulOperands& product, TensorView d_bias);
  // Announces one of these (idempotent): its workspace, and whether it will be one kernel. Called while planning.
  virtual PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue) { return {prepare_matmul(shape), false}; }
  // For those four, and for Ops made of others. Does it in one, or does nothing and returns false.
  virtual bool try_fused(Stream&, const FusedMatmul&) { return false; }

  // ---- attention (head-major tensors) ---------------------------------------------------------------------------------------
  virtual std::int64_t attention_workspace(const AttentionShape& shape) = 0;  // bytes, for forward and backward
  // out T[B,N,Sq,D]; lse f32[B,N,Sq] (natural log-sum-exp of the scaled scores); q T[B,N,Sq,D]; k, v T[B,K,Sk,D].
  void attention_forward(Stream& stream, const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q,
                         ConstTensorView k, ConstTensorView v, TensorView workspace) {
    call(stream, op::AttentionForward{shape, out, lse, q, k, v, workspace});
  }
  // Attention over a cache of Sk positions, sample b's queries at positions first[b] + i: out, lse as above, of causal attention
  // with query_offset first[b]. first [B] lies in host memory, is read before the call returns, and is from 0 to Sk - 1; queries
  // behind the cache's end see all of it. `shape` is causal, with offsets of 0, and announced by cached_attention_workspace(),
  // which returns bytes.
  virtual std::int64_t cached_attention_workspace(const AttentionShape& shape) = 0;
  void cached_attention(Stream& stream, const AttentionShape& shape, std::span<const std::int64_t> first, TensorView out,
                        TensorView lse, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView workspace) {
    call(stream, op::CachedAttention{shape, first, out, lse, q, k, v, workspace});
  }
  // d_q, d_k, d_v of the shapes of q, k, v, overwritten.
  void attention_backward(Stream& stream, const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v,
                          ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                          ConstTensorView lse, TensorView workspace) {
    call(stream, op::AttentionBackward{shape, d_q, d_k, d_v, d_out, out, q, k, v, lse, workspace});
  }
  // heads T[B,n,S,D] <- columns first_column .. first_column + n*D of rows T[S,B,C].
  void split_heads(Stream& stream, TensorView heads, ConstTensorView rows, std::int64_t first_column) {
    call(stream, op::SplitHeads{heads, rows, first_column});
  }
  // The inverse: writes those columns of rows T[S,B,C], leaves the others.
  void merge_heads(Stream& stream, TensorView rows, ConstTensorView heads, std::int64_t first_column) {
    call(stream, op::MergeHeads{rows, heads, first_column});
  }
  // In place on x T[B,n,S,D]: rotates pairs (j, j + P) of the first 2P elements of a head, P = table width (half-split form).
  // cos, sin f32[positions, P]; position i32[B,S] picks the row. `inverse` = kYes rotates back (the backward pass).
  void rope(Stream& stream, TensorView x, ConstTensorView cos, ConstTensorView sin, ConstTensorView position, Transpose inverse) {
    call(stream, op::Rope{x, cos, sin, position, inverse});
  }

  // ---- norms over the last dimension (x seen as [rows, H]) -------------------------------------------------------------------
  // y = round_T(x * rstd) * weight, rstd f32[rows] = 1/sqrt(mean(x^2) + eps).
  void rms_norm_forward(Stream& stream, TensorView y, TensorView rstd, ConstTensorView x, ConstTensorView weight, float eps) {
    call(stream, op::RmsNormForward{{y, rstd, x, weight, eps}});
  }
  // d_x (+)= per `accumulate_x`; d_weight f32[H] (+)= per `accumulate_weight`. d_x may alias d_y.
  void rms_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, ConstTensorView d_y, ConstTensorView x,
                         ConstTensorView weight, ConstTensorView rstd, Accumulate accumulate_x, Accumulate accumulate_weight) {
    call(stream, op::RmsNormBackward{{d_x, d_weight, d_y, x, weight, rstd, accumulate_x, accumulate_weight}});
  }
  // The same norm where x T[rows, H] is a part of rows `total` wide: the caller forms the sums of its part, adds up those of all
  // parts, and applies them. The weight counts before the one rounding (OLMo 2), which rms_norm_forward does after it.
  //
  // squares f32[rows] = sum x^2.
  void rms_norm_squares(Stream& stream, TensorView squares, ConstTensorView x) { call(stream, op::RmsNormSquares{squares, x}); }
  // y = round_T(x * rstd * weight), rstd f32[rows] = 1/sqrt(squares / total + eps); squares are those of all parts.
  void rms_norm_apply(Stream& stream, TensorView y, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                      ConstTensorView squares, std::int64_t total, float eps) {
    call(stream, op::RmsNormApply{{y, rstd, x, weight, eps}, squares, total});
  }
  // dots f32[rows] = sum d_y * weight * x.
  void rms_norm_dots(Stream& stream, TensorView dots, ConstTensorView d_y, ConstTensorView x, ConstTensorView weight) {
    call(stream, op::RmsNormDots{dots, d_y, x, weight});
  }
  // As rms_norm_backward; dots are those of all parts. d_x may alias d_y.
  void rms_norm_apply_backward(Stream& stream, TensorView d_x, TensorView d_weight, ConstTensorView d_y, ConstTensorView x,
                               ConstTensorView weight, ConstTensorView rstd, ConstTensorView dots, std::int64_t total,
                               Accumulate accumulate_x, Accumulate accumulate_weight) {
    call(stream,
         op::RmsNormApplyBackward{{d_x, d_weight, d_y, x, weight, rstd, accumulate_x, accumulate_weight}, dots, total});
  }
  // y = (x - mean) * rstd * weight + bias; mean, rstd f32[rows].
  void layer_norm_forward(Stream& stream, TensorView y, TensorView mean, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                          ConstTensorView bias, float eps) {
    call(stream, op::LayerNormForward{{y, rstd, x, weight, eps}, mean, bias});
  }
  void layer_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, TensorView d_bias, ConstTensorView d_y,
                           ConstTensorView x, ConstTensorView weight, ConstTensorView mean, ConstTensorView rstd,
                           Accumulate accumulate_x, Accumulate accumulate_weight) {
    call(stream, op::LayerNormBackward{{d_x, d_weight, d_y, x, weight, rstd, accumulate_x, accumulate_weight}, d_bias, mean});
  }

  // ---- feed-forward activations ----------------------------------------------------------------------------------------------
  // out T[R,F] = silu(gate) * up, gate_up T[R,2F] = [gate | up].
  void swiglu_forward(Stream& stream, TensorView out, ConstTensorView gate_up) { call(stream, op::SwigluForward{out, gate_up}); }
  void swiglu_backward(Stream& stream, TensorView d_gate_up, ConstTensorView d_out, ConstTensorView gate_up) {
    call(stream, op::SwigluBackward{d_gate_up, d_out, gate_up});
  }
  // tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  void gelu_forward(Stream& stream, TensorView out, ConstTensorView x) { call(stream, op::GeluForward{out, x}); }
  void gelu_backward(Stream& stream, TensorView d_x, ConstTensorView d_out, ConstTensorView x) {
    call(stream, op::GeluBackward{d_x, d_out, x});
  }

  // ---- bounds ----------------------------------------------------------------------------------------------------------------
  // out = x between -limit and limit, limit > 0; out may alias x.
  void clip_forward(Stream& stream, TensorView out, ConstTensorView x, float limit) {
    call(stream, op::ClipForward{out, x, limit});
  }
  // d_x = d_out where x was within the bounds or on them, else 0; d_x may alias d_out.
  void clip_backward(Stream& stream, TensorView d_x, ConstTensorView d_out, ConstTensorView x, float limit) {
    call(stream, op::ClipBackward{d_x, d_out, x, limit});
  }

  // ---- embedding ---------------------------------------------------------------------------------------------------------------
  // out T[R,H] = table[token - first_row], rows whose token lies outside [first_row, first_row + table rows) are zero.
  // tokens i32[R]; table T[rows,H].
  void embedding_forward(Stream& stream, TensorView out, ConstTensorView tokens, ConstTensorView table, std::int64_t first_row) {
    call(stream, op::EmbeddingForward{out, tokens, table, first_row});
  }
  // Adds d_out rows to d_table f32[rows,H], in token order; tokens outside the range are skipped.
  void embedding_backward(Stream& stream, TensorView d_table, ConstTensorView d_out, ConstTensorView tokens,
                          std::int64_t first_row) {
    call(stream, op::EmbeddingBackward{d_table, d_out, tokens, first_row});
  }

  // ---- vocabulary-parallel cross-entropy ---------------------------------------------------------------------------------------
  // Columns c of logits T[R,V] with first_column + c >= vocabulary are padding: ignored, as if -infinity.
  // row_max f32[R] = largest valid logit (-infinity when there is none).
  void cross_entropy_max(Stream& stream, TensorView row_max, ConstTensorView logits, std::int64_t first_column,
                         std::int64_t vocabulary) {
    call(stream, op::CrossEntropyMax{row_max, logits, first_column, vocabulary});
  }
  // With row_max the maximum over all shards: sum_exp f32[R] = sum exp(logit - row_max), target_logit f32[R] = logit of the target
  // minus row_max if this shard holds it, else 0. targets i32[R]; a negative target is not counted (contributes 0).
  void cross_entropy_stats(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView logits,
                           ConstTensorView row_max, ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary) {
    call(stream, op::CrossEntropyStats{sum_exp, target_logit, logits, row_max, targets, first_column, vocabulary});
  }
  // In place: statistics formed with shard_max f32[R], the maximum of this shard's `columns` columns alone, become those of
  // row_max: sum_exp *= exp(shard_max - row_max), target_logit += shard_max - row_max where this shard holds the target.
  void cross_entropy_rescale(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView shard_max,
                             ConstTensorView row_max, ConstTensorView targets, std::int64_t columns, std::int64_t first_column,
                             std::int64_t vocabulary) {
    call(stream, op::CrossEntropyRescale{sum_exp, target_logit, shard_max, row_max, targets, columns, first_column, vocabulary});
  }
  // loss f64[1] = sum over rows with target >= 0 of log(sum_exp) - target_logit (both summed over shards), added in row order in
  // f64. row_losses f32[R] = these terms, rounded, and 0 for other rows; or a view of nothing.
  void cross_entropy_loss(Stream& stream, TensorView loss, TensorView row_losses, ConstTensorView sum_exp,
                          ConstTensorView target_logit, ConstTensorView targets) {
    call(stream, op::CrossEntropyLoss{loss, row_losses, sum_exp, target_logit, targets});
  }
  // In place: logits become d_logits = (exp(logit - row_max)/sum_exp - onehot(target)) * scale; rows with a negative target and
  // padding columns become 0. sum_exp summed over shards.
  void cross_entropy_backward(Stream& stream, TensorView logits, ConstTensorView row_max, ConstTensorView sum_exp,
                              ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary, float scale) {
    call(stream, op::CrossEntropyBackward{logits, row_max, sum_exp, targets, first_column, vocabulary, scale});
  }

  // ---- elementwise, copies, reductions ------------------------------------------------------------------------------------------
  // In place: x T[R,C] += bias T[C] in every row.
  void add_bias(Stream& stream, TensorView x, ConstTensorView bias) { call(stream, op::AddBias{x, bias}); }
  // out f32[C] (+)= column sums of x T[R,C].
  void sum_rows(Stream& stream, TensorView out, ConstTensorView x, Accumulate accumulate) {
    call(stream, op::SumRows{out, x, accumulate});
  }
  // out = a + b, any shape, T; out may alias a or b.
  void add(Stream& stream, TensorView out, ConstTensorView a, ConstTensorView b) { call(stream, op::Add{out, a, b}); }
  // out f32 += x f32 (gradient accumulation).
  void accumulate(Stream& stream, TensorView out, ConstTensorView x) { call(stream, op::AccumulateInto{out, x}); }
  // out[s,b,:] = x[s,b,:] * mask/(1-p), [S,B,H]; the same call on the gradient is its backward. out may alias x.
  void dropout(Stream& stream, TensorView out, ConstTensorView x, ConstTensorView samples, const DropoutSpec& spec) {
    call(stream, op::Dropout{out, x, samples, spec});
  }
  // out = x converted (f32 <-> bf16, f32 <-> f16), or copied when the dtypes agree.
  void convert(Stream& stream, TensorView out, ConstTensorView x) { call(stream, op::Convert{out, x}); }
  void fill_zero(Stream& stream, TensorView out) { call(stream, op::FillZero{out}); }
  // out f64[ceil(n/64)] = sums of squares of consecutive blocks of 64 elements of x f32[n] (the last may be short): the blocks of
  // the layout-independent gradient norm. Non-finite elements give a non-finite block.
  void sum_squares(Stream& stream, TensorView out, ConstTensorView x) { call(stream, op::SumSquares{out, x}); }
  // limbs i64[ExactSum::kLimbs] (core/exact_sum.h) += x f64[n], without rounding. Digits may be left un-normalised, as
  // ExactSum::add leaves them; limbs that began normalised bear 2^30 elements before they must be normalised.
  void add_exact(Stream& stream, TensorView limbs, ConstTensorView x) { call(stream, op::AddExact{limbs, x}); }

  // ---- optimizer ----------------------------------------------------------------------------------------------------------------
  // master, states f32[n] updated in place; param T[n] = round(master), as at_random says; grad f32[n]. param may alias master
  // when T is f32.
  void update(Stream& stream, const op::Update& update) { call(stream, update); }

 private:
  template <class Operation>
  void call(Stream& stream, const Operation& operation) {
    run(stream, &operation);
  }
};

}  // namespace trident
