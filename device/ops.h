// The operations a backend provides, on `stream`; those on products and what follows them are one kernel or several.
//
// Letters: R rows (= S*B tokens, row s*B+b), H hidden width, F feed-forward width, V vocabulary columns held here, B micro-batch,
// S sequence, N query heads, K key/value heads, D head width.
//
// Rules for every operation
// - Views are dense and row-major. Outputs do not alias inputs unless the comment says "in place".
// - "T" is the compute dtype: f32, bf16 or f16, the same for every T operand of a call. Arithmetic is f32; results are rounded once.
// - Outputs are overwritten unless Accumulate::kYes is passed or the comment says "adds".
// - Nothing is allocated: products are announced by prepare_matmul() or prepare_fused() while planning, workspaces are arguments.
// - Results are a function of the operands alone: same bits for the same call, whatever ran before, on one instruction set.
// - Shape or dtype mistakes are TRIDENT_CHECK failures (InternalError).
#pragma once

#include <cstdint>
#include <optional>

#include "core/philox.h"
#include "core/tensor_view.h"
#include "device/op_flags.h"
#include "device/stream.h"

namespace trident {

// out[M,N] (+)= op(a) op(b), op(a) [M,K], op(b) [K,N].
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::kNo, transpose_b = Transpose::kNo;
  DType in = DType::kF32;   // of a and b: f32, bf16 or f16
  DType out = DType::kF32;  // f32 or as in; Accumulate::kYes into 16 bits rounds after the sum
  Accumulate accumulate = Accumulate::kNo;
  bool operator==(const MatmulShape&) const = default;
};

// The arguments of Ops::matmul.
struct MatmulOperands {
  TensorView out;
  ConstTensorView a;
  Transpose transpose_a = Transpose::kNo;
  ConstTensorView b;
  Transpose transpose_b = Transpose::kNo;
  Accumulate accumulate = Accumulate::kNo;
  TensorView workspace;
};

// A product and what follows it, for Ops::try_fused. Views that the epilogue does not have are empty.
struct FusedMatmul {
  Epilogue epilogue = Epilogue::kNone;
  MatmulOperands product;
  ConstTensorView bias;  // kBias, kBiasGelu
  ConstTensorView pre;   // kGeluBackward
  TensorView result;     // kBiasGelu: the activation; kGeluBackward: the gradient of pre; kBiasGradient: of the bias
};

// Attention of Sq queries over Sk keys. Query i has global position query_offset + i, key j key_offset + j; with `causal` a query
// sees keys at positions <= its own. N % K == 0; query head n uses key/value head n / (N/K). A query that sees no key gets
// output 0 and log-sum-exp -infinity.
struct AttentionShape {
  std::int64_t batch = 0, query_heads = 0, kv_heads = 0, query_length = 0, key_length = 0, head_dim = 0;
  std::int64_t query_offset = 0, key_offset = 0;
  float scale = 1.0f;
  bool causal = true;
  DType dtype = DType::kF32;
  bool operator==(const AttentionShape&) const = default;
};

// Where an element of an activation [S,B,H] is in the layout-free numbering that dropout draws from: element (s, b, h) has index
// ((sample_of[b] * sequence) + position_offset + s) * H + h under `key` (made from seed, step, layer and place).
struct DropoutSpec {
  float probability = 0.0f;  // of being dropped; survivors are scaled by 1/(1-p)
  PhiloxKey key{};
  std::int64_t sequence = 0;         // global sequence length
  std::int64_t position_offset = 0;  // global position of row s = 0 (sequence parallelism)
  ConstTensorView samples;           // i64 [B]: global sample index
};

// Stochastic rounding of bf16 parameters: up or down, in proportion to how near the two neighbours are (docs/numerics.md).
//
// Element i of a call is element e of the whole tensor, in row-major order: with j = first_column + i, e = first_index +
// (j / columns) * stride + j % columns. So a call may work on any part of a rank's rows, which may be pieces of the tensor's rows.
// Its 16 random bits r are half e % 8 of the Philox block of counter {e / 8, update} (two 64-bit numbers, low words first), where
// half 2w is the low half of word w and half 2w + 1 the high one. The result's bits are (bits of the f32 + r) >> 16, but for
// magnitudes beyond the largest bf16, infinities and NaN: these go to the nearest.
struct StochasticRounding {
  PhiloxKey key{};               // of the tensor: the same for every rank that holds some of it
  std::uint64_t update = 0;      // number of the update
  std::int64_t first_index = 0;  // in the tensor: column 0 of the row that element 0 of the call is in
  std::int64_t first_column = 0;  // of element 0 of the call, within its row; < columns
  std::int64_t columns = 1;      // of a row here; < 2^31
  std::int64_t stride = 1;       // from a row to the next in the tensor; >= columns
};

// AdamW (Loshchilov and Hutter 2019, algorithm 2 with bias correction): m, v moments; p -= lr*(mhat/(sqrt(vhat)+eps) + decay*p).
struct AdamWParams {
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  float grad_scale = 1;       // multiplies the gradient first: clipping and 1/loss scale
  float bias_correction1 = 1; // 1/(1 - beta1^t)
  float bias_correction2 = 1; // 1/(1 - beta2^t)
  std::optional<StochasticRounding> rounding{};  // of param, which is bf16; nothing: to nearest
};

class Ops {
 public:
  virtual ~Ops() = default;

  // ---- matrix products ----------------------------------------------------------------------------------------------------
  // Announces a product (idempotent); returns its workspace in bytes. Called while planning.
  virtual std::int64_t prepare_matmul(const MatmulShape& shape) = 0;
  // `workspace`: u8, at least what prepare_matmul returned for this shape.
  virtual void matmul(Stream& stream, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b,
                      Transpose transpose_b, Accumulate accumulate, TensorView workspace) = 0;

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
  // Announces one of these (idempotent); returns its workspace in bytes. Called while planning.
  virtual std::int64_t prepare_fused(const MatmulShape& shape, Epilogue) { return prepare_matmul(shape); }
  // For those four, and for Ops made of others. Does it in one, or does nothing and returns false.
  virtual bool try_fused(Stream&, const FusedMatmul&) { return false; }

  // ---- attention (head-major tensors) ---------------------------------------------------------------------------------------
  virtual std::int64_t attention_workspace(const AttentionShape& shape) = 0;  // bytes, for forward and backward
  // out T[B,N,Sq,D]; lse f32[B,N,Sq] (natural log-sum-exp of the scaled scores); q T[B,N,Sq,D]; k, v T[B,K,Sk,D].
  virtual void attention_forward(Stream& stream, const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q,
                                 ConstTensorView k, ConstTensorView v, TensorView workspace) = 0;
  // d_q, d_k, d_v of the shapes of q, k, v, overwritten.
  virtual void attention_backward(Stream& stream, const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v,
                                  ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k,
                                  ConstTensorView v, ConstTensorView lse, TensorView workspace) = 0;
  // heads T[B,n,S,D] <- columns first_column .. first_column + n*D of rows T[S,B,C].
  virtual void split_heads(Stream& stream, TensorView heads, ConstTensorView rows, std::int64_t first_column) = 0;
  // The inverse: writes those columns of rows T[S,B,C], leaves the others.
  virtual void merge_heads(Stream& stream, TensorView rows, ConstTensorView heads, std::int64_t first_column) = 0;
  // In place on x T[B,n,S,D]: rotates pairs (j, j + P) of the first 2P elements of a head, P = table width (half-split form).
  // cos, sin f32[positions, P]; position i32[B,S] picks the row. `inverse` = kYes rotates back (the backward pass).
  virtual void rope(Stream& stream, TensorView x, ConstTensorView cos, ConstTensorView sin, ConstTensorView position,
                    Transpose inverse) = 0;

  // ---- norms over the last dimension (x seen as [rows, H]) -------------------------------------------------------------------
  // y = round_T(x * rstd) * weight, rstd f32[rows] = 1/sqrt(mean(x^2) + eps).
  virtual void rms_norm_forward(Stream& stream, TensorView y, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                                float eps) = 0;
  // d_x (+)= per `accumulate_x`; d_weight f32[H] (+)= per `accumulate_weight`. d_x may alias d_y.
  virtual void rms_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, ConstTensorView d_y, ConstTensorView x,
                                 ConstTensorView weight, ConstTensorView rstd, Accumulate accumulate_x,
                                 Accumulate accumulate_weight) = 0;
  // y = (x - mean) * rstd * weight + bias; mean, rstd f32[rows].
  virtual void layer_norm_forward(Stream& stream, TensorView y, TensorView mean, TensorView rstd, ConstTensorView x,
                                  ConstTensorView weight, ConstTensorView bias, float eps) = 0;
  virtual void layer_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, TensorView d_bias, ConstTensorView d_y,
                                   ConstTensorView x, ConstTensorView weight, ConstTensorView mean, ConstTensorView rstd,
                                   Accumulate accumulate_x, Accumulate accumulate_weight) = 0;

  // ---- feed-forward activations ----------------------------------------------------------------------------------------------
  // out T[R,F] = silu(gate) * up, gate_up T[R,2F] = [gate | up].
  virtual void swiglu_forward(Stream& stream, TensorView out, ConstTensorView gate_up) = 0;
  virtual void swiglu_backward(Stream& stream, TensorView d_gate_up, ConstTensorView d_out, ConstTensorView gate_up) = 0;
  // tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  virtual void gelu_forward(Stream& stream, TensorView out, ConstTensorView x) = 0;
  virtual void gelu_backward(Stream& stream, TensorView d_x, ConstTensorView d_out, ConstTensorView x) = 0;

  // ---- embedding ---------------------------------------------------------------------------------------------------------------
  // out T[R,H] = table[token - first_row], rows whose token lies outside [first_row, first_row + table rows) are zero.
  // tokens i32[R]; table T[rows,H].
  virtual void embedding_forward(Stream& stream, TensorView out, ConstTensorView tokens, ConstTensorView table,
                                 std::int64_t first_row) = 0;
  // Adds d_out rows to d_table f32[rows,H], in token order; tokens outside the range are skipped.
  virtual void embedding_backward(Stream& stream, TensorView d_table, ConstTensorView d_out, ConstTensorView tokens,
                                  std::int64_t first_row) = 0;

  // ---- vocabulary-parallel cross-entropy ---------------------------------------------------------------------------------------
  // Columns c of logits T[R,V] with first_column + c >= vocabulary are padding: ignored, as if -infinity.
  // row_max f32[R] = largest valid logit (-infinity when there is none).
  virtual void cross_entropy_max(Stream& stream, TensorView row_max, ConstTensorView logits, std::int64_t first_column,
                                 std::int64_t vocabulary) = 0;
  // With row_max the maximum over all shards: sum_exp f32[R] = sum exp(logit - row_max), target_logit f32[R] = logit of the target
  // minus row_max if this shard holds it, else 0. targets i32[R]; a negative target is not counted (contributes 0).
  virtual void cross_entropy_stats(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView logits,
                                   ConstTensorView row_max, ConstTensorView targets, std::int64_t first_column,
                                   std::int64_t vocabulary) = 0;
  // In place: statistics formed with shard_max f32[R], the maximum of this shard's `columns` columns alone, become those of
  // row_max: sum_exp *= exp(shard_max - row_max), target_logit += shard_max - row_max where this shard holds the target.
  virtual void cross_entropy_rescale(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView shard_max,
                                     ConstTensorView row_max, ConstTensorView targets, std::int64_t columns,
                                     std::int64_t first_column, std::int64_t vocabulary) = 0;
  // loss f64[1] = sum over rows with target >= 0 of log(sum_exp) - target_logit (both summed over shards), added in row order in
  // f64.
  virtual void cross_entropy_loss(Stream& stream, TensorView loss, ConstTensorView sum_exp, ConstTensorView target_logit,
                                  ConstTensorView targets) = 0;
  // In place: logits become d_logits = (exp(logit - row_max)/sum_exp - onehot(target)) * scale; rows with a negative target and
  // padding columns become 0. sum_exp summed over shards.
  virtual void cross_entropy_backward(Stream& stream, TensorView logits, ConstTensorView row_max, ConstTensorView sum_exp,
                                      ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary, float scale) = 0;

  // ---- elementwise, copies, reductions -------------------------------------------------------------------------------------------
  // In place: x T[R,C] += bias T[C] in every row.
  virtual void add_bias(Stream& stream, TensorView x, ConstTensorView bias) = 0;
  // out f32[C] (+)= column sums of x T[R,C].
  virtual void sum_rows(Stream& stream, TensorView out, ConstTensorView x, Accumulate accumulate) = 0;
  // out = a + b, any shape, T; out may alias a or b.
  virtual void add(Stream& stream, TensorView out, ConstTensorView a, ConstTensorView b) = 0;
  // out f32 += x f32 (gradient accumulation).
  virtual void accumulate(Stream& stream, TensorView out, ConstTensorView x) = 0;
  // out[s,b,:] = x[s,b,:] * mask/(1-p), [S,B,H]; the same call on the gradient is its backward. out may alias x.
  virtual void dropout(Stream& stream, TensorView out, ConstTensorView x, const DropoutSpec& spec) = 0;
  // out = x converted (f32 <-> bf16, f32 <-> f16), or copied when the dtypes agree.
  virtual void convert(Stream& stream, TensorView out, ConstTensorView x) = 0;
  virtual void fill_zero(Stream& stream, TensorView out) = 0;
  // out f64[ceil(n/64)] = sums of squares of consecutive blocks of 64 elements of x f32[n] (the last may be short): the blocks of
  // the layout-independent gradient norm. Non-finite elements give a non-finite block.
  virtual void sum_squares(Stream& stream, TensorView out, ConstTensorView x) = 0;
  // limbs i64[ExactSum::kLimbs] (core/exact_sum.h) += x f64[n], without rounding. Digits may be left un-normalised, as ExactSum::add leaves
  // them; limbs that began normalised bear 2^30 elements before they must be normalised.
  virtual void add_exact(Stream& stream, TensorView limbs, ConstTensorView x) = 0;

  // ---- optimizer ------------------------------------------------------------------------------------------------------------------
  // master, m, v f32[n] updated in place; param T[n] = round(master), as params.rounding says; grad f32[n]. param may alias master
  // when T is f32.
  virtual void adamw(Stream& stream, TensorView param, TensorView master, TensorView m, TensorView v, ConstTensorView grad,
                     const AdamWParams& params) = 0;
};

}  // namespace trident
