// Cases by operation and shape. Letters as in device/ops.h; `t` is the compute dtype.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/conformance/op_case.h"
#include "tests/support/reference_attention.h"

namespace trident::conformance {

// ---- products and attention
OpCase matmul(const MatmulShape& shape, Draw draw);
// Products and what follows them; `shape` is of T into T.
OpCase matmul_bias(const MatmulShape& shape, Draw draw);
OpCase matmul_bias_gelu(const MatmulShape& shape);
OpCase matmul_summands(const MatmulShape& shape, bool residual, Index rank, Draw draw);
OpCase matmul_gelu_backward(const MatmulShape& shape);
// d_weight f32[out_columns, in_columns] and d_bias of a linear layer.
OpCase matmul_bias_gradient(DType t, Index out_columns, Index in_columns, Index rows, Accumulate accumulate, Draw draw);
// Adds first_key where shape.interval says that there are intervals.
OpCase attention_forward(const AttentionShape& shape, const reference::Intervals& intervals = {});
// Sample b's queries begin at position first[b] of a cache of shape.key_length.
OpCase cached_attention(const AttentionShape& shape, std::vector<std::int64_t> first, const reference::Intervals& intervals = {});
OpCase attention_backward(const AttentionShape& shape, const reference::Intervals& intervals = {});
// Scale 1/sqrt(D), causal, no offsets.
AttentionShape attention_shape(DType t, Index B, Index N, Index K, Index Sq, Index Sk, Index D);

// ---- heads
struct HeadShape {
  Index B, n, S, D;
};
OpCase split_heads(DType t, HeadShape heads, Index columns, Index first_column);
OpCase merge_heads(DType t, HeadShape heads, Index columns, Index first_column);
OpCase split_rotated_heads(DType t, HeadShape heads, Index columns, Index first_column, Index pairs);
OpCase merge_rotated_heads(DType t, HeadShape heads, Index columns, Index first_column, Index pairs);
OpCase rope(DType t, HeadShape heads, Index pairs, Transpose inverse);

// ---- norms
enum class Gradient : std::uint8_t { kOverwrite, kAdd, kInPlace };  // d_x is written, added to, or lies where d_y lay
OpCase rms_norm_forward(DType t, Index R, Index H);
// The rows still lack a residual, and a bias before it.
OpCase residual_rms_norm(DType t, Index R, Index H, bool bias);
OpCase residual_layer_norm(DType t, Index R, Index H, bool bias);
OpCase rms_norm_backward(DType t, Index R, Index H, Gradient d_x, Accumulate weight);
// It takes the first H of 3 H columns: the other parts' sums are twice as large.
OpCase rms_norm_squares(DType t, Index R, Index H);
OpCase rms_norm_apply(DType t, Index R, Index H);
OpCase rms_norm_dots(DType t, Index R, Index H);
OpCase rms_norm_apply_backward(DType t, Index R, Index H, Gradient d_x, Accumulate weight);
OpCase layer_norm_forward(DType t, Index R, Index H);
OpCase layer_norm_backward(DType t, Index R, Index H, Gradient d_x, Accumulate weight);

// ---- activations and elementwise
OpCase swiglu_forward(DType t, Index R, Index F, Draw x = normal(0, 3));
OpCase swiglu_backward(DType t, Index R, Index F, Draw x = normal(0, 3));
OpCase gelu_forward(DType t, Index R, Index F, Draw x = normal(0, 3));
OpCase bias_gelu(DType t, Index R, Index F, Draw x = normal(0, 2));
OpCase gelu_backward(DType t, Index R, Index F, Draw x = normal(0, 3));
// Integers, so that many lie on the bounds.
OpCase clip_forward(DType t, Index count, float limit, Draw x = integers(-4, 4));
OpCase clip_backward(DType t, Index count, float limit, bool aliased, Draw x = integers(-4, 4));
enum class Alias : std::uint8_t { kNone, kFirst, kSecond };  // which input lies where the output does
OpCase add_bias(DType t, Index R, Index C);
OpCase add_bias_residual(DType t, Index R, Index C);
OpCase sum_rows(DType t, Index R, Index C, Accumulate accumulate, Draw draw);
OpCase sum_products(DType t, Index R, Index C);
OpCase scale_columns(DType t, Index R, Index C, Accumulate accumulate);
OpCase add(DType t, Index n, Alias alias);
OpCase accumulate(Index n);
OpCase dropout(DType t, Index S, Index B, Index H, float probability, Alias alias, Index all_columns = 0, Index first_column = 0);
OpCase convert(DType from, DType to, Index n);
OpCase fill_zero(DType t, Index n);
OpCase sum_squares(Index n, Draw draw);
OpCase add_exact(Index n, Draw draw);
OpCase update(UpdateRule rule, DType t, Index n, float weight_decay, Alias param);  // kFirst: the parameter is its own master
OpCase update_at_random(UpdateRule rule, Index n, const RoundedElements& elements);  // bf16

// ---- embedding and loss
OpCase embedding_forward(DType t, Index R, Index H, Index table_rows, Index first_row);
OpCase embedding_backward(DType t, Index R, Index H, Index table_rows, Index first_row, Draw draw);
struct VocabularyPart {
  Index columns, first_column, vocabulary;
};
OpCase cross_entropy_stats(DType t, Index R, VocabularyPart part, Draw logits, float softcap = 0);
enum class RowWeights : std::uint8_t { kNone, kDrawn };
OpCase cross_entropy_backward(DType t, Index R, VocabularyPart part, Draw logits, float softcap = 0,
                              RowWeights weights = RowWeights::kNone);
// The vocabulary is whole: part.first_column is 0.
OpCase cross_entropy_gradient(DType t, Index R, VocabularyPart part, Draw logits, float softcap = 0,
                              RowWeights weights = RowWeights::kNone);
OpCase cross_entropy_rescale(Index R, VocabularyPart part);
OpCase cross_entropy_loss(Index R, RowWeights weights = RowWeights::kNone);

}  // namespace trident::conformance
