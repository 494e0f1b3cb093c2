// Attention over a cache of keys and values on a CUDA device: the same bits every time, f32 arithmetic for every type.
//
// Contract: op::CachedAttention (device/operations_layers.h). Pointers are device memory but for `first`; nothing needs to be
// aligned beyond its element.
#pragma once

#include <cstdint>

#include "device/row_kernels/row_kernels.h"

struct CUstream_st;

namespace trident::cuda_kernels {

// As AttentionShape in device/op_values.h.
struct CachedAttentionExtents {
  std::int64_t batch = 0, query_heads = 0, kv_heads = 0, query_length = 0, key_length = 0, head_dim = 0;
  float scale = 1.0f, softcap = 0.0f;
  const std::int32_t* first_key = nullptr;  // [B,Sq] in device memory, or null
};

// out T[B,N,Sq,D]; lse f32[B,N,Sq]; q T[B,N,Sq,D]; k, v T[B,K,Sk,D]; first [B] in host memory, read before the call returns.
void cached_attention(CUstream_st* stream, RowType t, void* out, float* lse, const void* q, const void* k, const void* v,
                      const CachedAttentionExtents& extents, const std::int64_t* first);

}  // namespace trident::cuda_kernels
