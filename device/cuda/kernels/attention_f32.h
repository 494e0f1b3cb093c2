// Attention in f32 arithmetic, forward and backward, on a CUDA device: any lengths, offsets and head width, the same bits every
// time.
//
// For f32 tensors, and for what the attention library does not take. Formulas and contract are those of device/ops.h; p and d_score
// are not rounded to T. Pointers are device memory; nothing needs to be aligned beyond its element.
#pragma once

#include <cstdint>

#include "device/row_kernels/row_kernels.h"

struct CUstream_st;

namespace trident::cuda_kernels {

// As AttentionShape in device/ops.h. Query i sees key j if !causal or j <= i + shift: shift = query_offset - key_offset.
struct AttentionExtents {
  std::int64_t batch = 0, query_heads = 0, kv_heads = 0, query_length = 0, key_length = 0, head_dim = 0, shift = 0;
  float scale = 1.0f;
  int causal = 1;
  float softcap = 0.0f;
  std::int64_t key_offset = 0;              // of what first_key names
  const std::int32_t* first_key = nullptr;  // [B,Sq] in device memory, or null
};

void attention_f32_forward(CUstream_st* stream, RowType t, void* out, float* lse, const void* q, const void* k, const void* v,
                           const AttentionExtents& extents);
// delta f32[B,N,Sq] is scratch.
void attention_f32_backward(CUstream_st* stream, RowType t, void* d_q, void* d_k, void* d_v, float* delta, const void* d_out,
                            const void* out, const void* q, const void* k, const void* v, const float* lse,
                            const AttentionExtents& extents);

}  // namespace trident::cuda_kernels
