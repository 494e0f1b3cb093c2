#include "device/gpu_workspaces.h"

#include <algorithm>

#include "core/int_math.h"

namespace trident {

std::int64_t gpu_attention_workspace(const AttentionShape& s, bool deterministic) {
  constexpr std::int64_t kTile = 128, kSmall = 1 << 20, kF32 = size_of(DType::kF32), kKeysAndValues = 2;
  const std::int64_t heads = s.batch * s.query_heads, queries = round_up(s.query_length, kTile),
                     keys = round_up(s.key_length, kTile);
  const std::int64_t row_sums = heads * s.query_length * kF32;
  if (s.dtype == DType::kF32) return row_sums + kSmall;                    // our own kernels
  const std::int64_t score_gradients = queries * keys * size_of(s.dtype);  // of a head
  const std::int64_t group = s.query_heads / s.kv_heads;
  const std::int64_t together = deterministic ? std::min(heads, std::max(group, kGpuScoreGradients / score_gradients)) : heads;
  const std::int64_t per_head = deterministic ? score_gradients : s.query_length * s.head_dim * kF32;
  return row_sums + kSmall + together * (kKeysAndValues * keys * s.head_dim * kF32 + per_head);
}

}  // namespace trident
