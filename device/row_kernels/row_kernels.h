// Row-wise and elementwise kernels on host memory: one table of functions per instruction set, all compiled from the same bodies.
//
// These are the formulas of device/operations.h (which has the contracts: shapes, accumulate or overwrite) on raw pointers.
// Shapes are checked by the caller. Sizes are elements; any size works, 0 included (but norms need width >= 1); no alignment is
// required.
// - "T" pointers are void* and point to elements of the RowType argument; everything else is typed.
// - Arithmetic is f32 (sum_squares: f64), rounded to T once per result.
// - A row's result is a function of that row and the instruction set alone: not of its number, its neighbours or its address. So
//   callers may split calls by rows (or elements) as they like, except where results add up over rows (d_weight, d_bias, d_table,
//   sum_rows): those are summed in row order within a call.
// - exp() is a polynomial with relative error below 2.5e-7; exp(-inf) = 0, overflow gives infinity, NaN stays NaN.
#pragma once

#include <cstdint>

#include "device/op_flags.h"
#include "device/op_numbers.h"
#include "device/row_kernels/isa_level.h"

namespace trident {

enum class DType : std::uint8_t;  // core/dtype.h, which files compiled for one instruction set must not include

enum class RowType : std::uint8_t { kF32, kBF16, kF16 };

// The RowType of a compute dtype; anything but f32, bf16 and f16 is an InternalError.
RowType row_type(DType dtype);

// Which columns of a vocabulary shard count, and how its logits are bounded: see op::CrossEntropyStats in device/operations.h.
struct VocabularyShard {
  std::int64_t columns = 0;       // V, held here
  std::int64_t first_column = 0;  // global number of column 0
  std::int64_t vocabulary = 0;    // global size; columns from here on are padding
  float softcap = 0.0f;           // over 0: the bound
};

// A rule's states of elements: the first num_states(rule) are there.
struct UpdateStates {
  float* of[kMostUpdateStates] = {};
};

struct RowKernels {
  using I = std::int64_t;
  IsaLevel level;

  // ---- heads: heads T[batch, heads, sequence, head_dim], rows T[sequence, batch, columns]
  void (*split_heads)(RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim, I columns,
                      I first_column);
  void (*merge_heads)(RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim, I columns,
                      I first_column);
  // The same of heads that turn on the way, as rope; merging turns them back.
  void (*split_rotated_heads)(RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim, I columns,
                              I first_column, const float* cos, const float* sin, const std::int32_t* position, I half);
  void (*merge_rotated_heads)(RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim, I columns,
                              I first_column, const float* cos, const float* sin, const std::int32_t* position, I half);
  // x T[batch, heads, sequence, head_dim] in place; cos, sin f32[positions, half] with 2 * half <= head_dim; position [batch,
  // sequence].
  void (*rope)(RowType t, void* x, const float* cos, const float* sin, const std::int32_t* position, I batch, I num_heads,
               I sequence, I head_dim, I half, Transpose inverse);

  // ---- norms: x, y T[rows, width]
  void (*rms_norm_forward)(RowType t, void* y, float* rstd, const void* x, const void* weight, I rows, I width, float eps);
  void (*rms_norm_backward)(RowType t, void* d_x, float* d_weight, const void* d_y, const void* x, const void* weight,
                            const float* rstd, I rows, I width, Accumulate accumulate_x, Accumulate accumulate_weight);
  // For parts of rows, `total` elements wide.
  void (*rms_norm_squares)(RowType t, float* squares, const void* x, I rows, I width);
  void (*rms_norm_apply)(RowType t, void* y, float* rstd, const void* x, const void* weight, const float* squares, I rows, I width,
                         I total, float eps);
  void (*rms_norm_dots)(RowType t, float* dots, const void* d_y, const void* x, const void* weight, I rows, I width);
  void (*rms_norm_apply_backward)(RowType t, void* d_x, float* d_weight, const void* d_y, const void* x, const void* weight,
                                  const float* rstd, const float* dots, I rows, I width, I total, Accumulate accumulate_x,
                                  Accumulate accumulate_weight);
  void (*layer_norm_forward)(RowType t, void* y, float* mean, float* rstd, const void* x, const void* weight, const void* bias,
                             I rows, I width, float eps);
  // The forward norms of x += summed_bias + residual, rounded once; summed_bias may be null.
  void (*residual_rms_norm)(RowType t, void* y, float* rstd, void* x, const void* summed_bias, const void* residual,
                            const void* weight, I rows, I width, float eps);
  void (*residual_layer_norm)(RowType t, void* y, float* mean, float* rstd, void* x, const void* summed_bias,
                              const void* residual, const void* weight, const void* bias, I rows, I width, float eps);
  void (*layer_norm_backward)(RowType t, void* d_x, float* d_weight, float* d_bias, const void* d_y, const void* x,
                              const void* weight, const float* mean, const float* rstd, I rows, I width, Accumulate accumulate_x,
                              Accumulate accumulate_weight);

  // ---- activations: gate_up T[rows, 2 * width]
  void (*swiglu_forward)(RowType t, void* out, const void* gate_up, I rows, I width);
  void (*swiglu_backward)(RowType t, void* d_gate_up, void* d_out, const void* gate_up, I rows, I width);
  void (*gelu_forward)(RowType t, void* out, const void* x, I count);
  void (*bias_gelu)(RowType t, void* out, void* x, const void* bias, I rows, I width);
  void (*gelu_backward)(RowType t, void* d_x, void* d_out, const void* x, I count);
  void (*clip_forward)(RowType t, void* out, const void* x, I count, float limit);
  void (*clip_backward)(RowType t, void* d_x, const void* d_out, const void* x, I count, float limit);

  // ---- embedding: table T[table_rows, width]
  void (*embedding_forward)(RowType t, void* out, const std::int32_t* tokens, const void* table, I rows, I width, I first_row,
                            I table_rows);
  void (*embedding_backward)(RowType t, float* d_table, const void* d_out, const std::int32_t* tokens, I rows, I width, I first_row,
                             I table_rows);

  // ---- cross-entropy: logits T[rows, shard.columns]; weights f32[rows] multiply `scale`, or nullptr
  void (*cross_entropy_stats)(RowType t, float* row_max, float* sum_exp, float* target_logit, const void* logits,
                              const std::int32_t* targets, I rows, const VocabularyShard& shard);
  void (*cross_entropy_backward)(RowType t, void* logits, const float* row_max, const float* sum_exp, const std::int32_t* targets,
                                 I rows, const VocabularyShard& shard, float scale, const float* weights);
  void (*cross_entropy_gradient)(RowType t, void* logits, float* sum_exp, float* target_logit, const std::int32_t* targets, I rows,
                                 const VocabularyShard& shard, float scale, const float* weights);

  // ---- elementwise, copies, reductions
  void (*add_bias)(RowType t, void* x, const void* bias, I rows, I width);
  void (*add_bias_residual)(RowType t, void* x, const void* bias, const void* residual, I rows, I width);
  // times T[rows, width]: or nullptr.
  void (*sum_rows)(RowType t, float* out, const void* x, const void* times, I rows, I width, Accumulate accumulate);
  void (*scale_columns)(RowType t, void* out, const void* x, const float* factor, float shift, I rows, I width,
                        Accumulate accumulate);
  void (*add)(RowType t, void* out, const void* a, const void* b, I count);
  void (*accumulate)(float* out, const float* x, I count);
  // x T[sequence, batch, width]; samples [batch]: global indices.
  void (*dropout)(RowType t, void* out, const void* x, const std::int64_t* samples, I sequence, I batch, I width,
                  const DropoutSpec& spec);
  // The same type, or one of both f32.
  void (*convert)(RowType out_type, void* out, RowType in_type, const void* x, I count);
  void (*fill_zero)(void* out, I bytes);
  // out f64[ceil(count / 64)]. The same bits on every instruction set.
  void (*sum_squares)(double* out, const float* x, I count);

  // ---- optimizer
  // at_random: null, or which elements they are of a tensor whose parameters are rounded up or down at random; t is bf16 then. The
  // same bits on every instruction set as far as masters are.
  void (*update)(UpdateRule rule, RowType t, void* param, float* master, const UpdateStates& states, const float* grad,
                 I count, const UpdateNumbers& numbers, const RoundedElements* at_random);
};

// X(name) of every function above. The plain ones: those that on a GPU take nothing but a stream besides (device/cuda/kernels);
// those with scratch: which there also take memory for sums over rows.
#define TRIDENT_PLAIN_ROW_KERNELS(X)                                                                                         \
  X(split_heads) X(merge_heads) X(split_rotated_heads) X(merge_rotated_heads) X(rope) X(rms_norm_forward)                    \
  X(layer_norm_forward) X(residual_rms_norm) X(residual_layer_norm) X(swiglu_forward) X(swiglu_backward) X(gelu_forward)     \
  X(bias_gelu) X(gelu_backward) X(embedding_forward) X(embedding_backward) X(cross_entropy_stats) X(add_bias)                \
  X(add_bias_residual) X(add) X(accumulate) X(sum_squares) X(rms_norm_squares) X(rms_norm_apply) X(rms_norm_dots)            \
  X(clip_forward) X(clip_backward) X(scale_columns)
#define TRIDENT_SCRATCH_ROW_KERNELS(X)                                                                                       \
  X(rms_norm_backward) X(rms_norm_apply_backward) X(layer_norm_backward) X(sum_rows)
#define TRIDENT_OTHER_ROW_KERNELS(X)                                                                                         \
  X(cross_entropy_backward) X(cross_entropy_gradient) X(dropout) X(convert) X(fill_zero) X(update)

// The kernels for `level`, which the processor must support.
const RowKernels& row_kernels(IsaLevel level);

}  // namespace trident
