// The row-wise part of attention on one tile of scores: what happens between the matrix products. Compiled once per instruction
// set from attention_rows.inl; files compiled for one instruction set include nothing of std that has code.
//
// A tile holds the scores of `rows` queries and `columns` keys, f32[rows, columns] before scaling. Row r sees its first
// min(max(first_visible + r * step, 0), columns) columns (step 1: causal; 0: every row the same), and of these, where there are
// first keys, those from first_key[r] - key_position on. Pointers named "T" are f32, bf16 or f16 by RowType. A row's result depends
// on that row alone.
#pragma once

#include <cstdint>

#include "device/row_kernels/row_kernels.h"

namespace trident {

struct ScoreTile {
  std::int64_t rows = 0, columns = 0;
  std::int64_t first_visible = 0, step = 0;
  const std::int32_t* first_key = nullptr;  // [rows], global positions; or null
  std::int64_t key_position = 0;            // of column 0, global
  float scale = 1.0f, softcap = 0.0f;       // over 0, softcap * tanh(score / softcap) takes a scaled score's place
};

struct AttentionRows {
  // Online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): updates row_max, row_sum f32[rows], rescales
  // acc f32[rows, head_dim], and writes p T[rows, columns] = exp(scale * score - row_max), 0 where a key is not seen.
  // For f32 p may be the scores. Start with row_max = -infinity, row_sum = 0, acc = 0.
  void (*softmax_step)(RowType t, const ScoreTile& tile, const float* scores, void* p, float* row_max, float* row_sum, float* acc,
                       std::int64_t head_dim);
  // out T[rows, head_dim] = acc / row_sum, lse f32[rows] = row_max + log(row_sum); a row that saw no key: 0 and -infinity.
  void (*softmax_finish)(RowType t, void* out, float* lse, const float* acc, const float* row_max, const float* row_sum,
                         std::int64_t rows, std::int64_t head_dim);
  // delta f32[rows] = row sums of d_out * out, both T[rows, head_dim].
  void (*delta)(RowType t, float* delta, const void* d_out, const void* out, std::int64_t rows, std::int64_t head_dim);
  // p T = exp(scale * score - lse), d_s T = scale * p * (d_p - delta), times the slope of the bound; 0 where a key is not seen. For
  // f32 p may be the scores and d_s may be d_p.
  void (*softmax_backward)(RowType t, const ScoreTile& tile, const float* scores, const float* d_p, void* p, void* d_s,
                           const float* lse, const float* delta);
};

// The functions for `level`, which the processor must support.
AttentionRows attention_rows(IsaLevel level);

}  // namespace trident
