// Attention in tiles (Dao 2023, "FlashAttention-2"): scores of a few queries and a tile of keys exist at a time, between the
// registers of two products; the backward pass computes them again from the log-sum-exp. Compiled once per instruction set from
// attention_tiles.inl; files compiled for one instruction set include nothing of std that has code.
//
// "T" is f32, bf16 or f16 by RowType. Operands are copied into tiles of f32, or of pairs of bf16 where the processor multiplies
// those faster; sums are f32. Tiles begin at multiples of kAttentionTile, and every sum has an order of its own: a query's results,
// and a key's, depend on what they see alone.
#pragma once

#include <cstdint>

#include "device/row_kernels/row_kernels.h"

namespace trident {

// Queries and keys of a tile.
inline constexpr std::int64_t kAttentionTile = 128;

// Elements from a query or key to the next, and from one head of a group to the next.
struct HeadStrides {
  std::int64_t row = 0, head = 0;
};

// Turns queries and keys as they are read, and their gradients back, with the kernels of heads. Nothing turns by 0 pairs.
struct HeadRotation {
  const RowKernels* kernels = nullptr;
  const float *cos = nullptr, *sin = nullptr;  // [positions, pairs]
  const std::int32_t* position = nullptr;      // of query i and of key i
  std::int64_t pairs = 0;
};

// The query heads that share one key/value head of a sample. Query i sees the keys up to i + offset, all where not causal, and of
// these those from first_key[i] - key_position on.
struct AttentionGroup {
  std::int64_t heads = 0, query_length = 0, key_length = 0, head_dim = 0;
  bool causal = true;
  std::int64_t offset = 0;
  const std::int32_t* first_key = nullptr;  // [query_length], or null: from the first on
  std::int64_t key_position = 0;            // global, of key 0
  float scale = 1.0f, softcap = 0.0f;       // over 0, softcap * tanh(score / softcap) takes a scaled score's place
  HeadStrides q, k, v, out;                 // gradients lie as what they are of
  HeadRotation rotation;
};

// A call of the backward pass makes these, of all heads: d_q of the queries first_query .. end_query - 1 from all keys, if there is
// a d_q, and d_k, d_v of the keys first_key .. end_key - 1 from all queries, if there are; whoever wants both has all of both. The
// firsts are multiples of kAttentionTile.
struct AttentionGradients {
  void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  const void *d_out = nullptr, *out = nullptr, *q = nullptr, *k = nullptr, *v = nullptr;
  const float* lse = nullptr;
  std::int64_t first_query = 0, end_query = 0, first_key = 0, end_key = 0;
};

struct AttentionTiles {
  // Floats that a call works in; a backward one that makes d_q of `queries` queries.
  std::int64_t (*forward_floats)(const AttentionGroup& group);
  std::int64_t (*backward_floats)(const AttentionGroup& group, std::int64_t queries);
  // Queries first_query .. end_query - 1 of every head; first_query is a multiple of kAttentionTile. lse f32[heads, query_length].
  void (*forward)(RowType t, const AttentionGroup& group, std::int64_t first_query, std::int64_t end_query, void* out, float* lse,
                  const void* q, const void* k, const void* v, float* memory);
  void (*backward)(RowType t, const AttentionGroup& group, const AttentionGradients& gradients, float* memory);
};

// The functions for `level`, which the processor must support; `pairs`: for bf16 alone, on AVX512-BF16, which it must have too.
AttentionTiles attention_tiles(IsaLevel level, bool pairs);

// One source file each (attention_tiles_<level>.cpp), compiled for that instruction set.
AttentionTiles attention_tiles_baseline();
AttentionTiles attention_tiles_avx2();
AttentionTiles attention_tiles_avx512();
AttentionTiles attention_tiles_avx512_bf16();

}  // namespace trident
