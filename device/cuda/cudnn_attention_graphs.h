// Attention as graphs of cuDNN operations: pure descriptions, without handles, plans or memory.
//
// Forward: products, scale, mask, softmax with its log-sum-exp, product. Backward: the scores again from the log-sum-exp, then the
// three gradients. cuDNN recognises the pattern and fuses it into one kernel per direction, so the operations, their order and the
// types of what lies between them are cuDNN's own composite attention (as in its frontend 1.23), not a choice.
#pragma once

#include <cstdint>

#include "device/cuda/cudnn_graph.h"
#include "device/ops.h"

namespace trident {

// The caller's names of tensors and scalars. T is the shape's dtype; B, N, K, Sq, Sk, D as in device/ops.h.
namespace attention_tensor {
enum Uid : std::int64_t {
  kQ = 1,          // T[B,N,Sq,D]
  kK,              // T[B,K,Sk,D]
  kV,              // T[B,K,Sk,D]
  kOut,            // T[B,N,Sq,D]
  kLse,            // f32[B,N,Sq]
  kDOut,           // T[B,N,Sq,D]
  kDQ,             // T[B,N,Sq,D]
  kDK,             // T[B,K,Sk,D]
  kDV,             // T[B,K,Sk,D]
  kDelta,          // f32[B,N,Sq] scratch: row sums of d_out * out
  kDQSum,          // f32[B,N,Sq,D] scratch, absent from deterministic graphs: where blocks of keys add up d_q
  kScale,          // f32 scalar
  kMinusInfinity,  // f32 scalar, with a mask
  kOne,            // f32 scalar, backward
  kShift,          // i32 scalar, with a causal mask whose offsets differ: query_offset - key_offset
  kFirstKey,       // i32[B,Sq], with intervals
  kSoftcap,        // f32 scalar, with bounded scores
};
}  // namespace attention_tensor

// Whether the causal mask hides anything, intervals included: without, the graph has none.
bool causal_mask_hides(const AttentionShape& shape);
// "B2 N8 K2 Sq1024 Sk1024 D64 causal bf16", with offsets where they are not zero.
std::string describe(const AttentionShape& shape);

// Shapes in bf16 or f16 with at least one query and key, whose first query sees a key; with intervals, whose keys begin at 0.
CudnnGraph attention_forward_graph(const AttentionShape& shape);
// kRequired: d_score is kept whole (2 * B * N * Sq * Sk bytes of workspace) and d_q is one product; else blocks of keys add to d_q
// in the order in which they finish.
CudnnGraph attention_backward_graph(const AttentionShape& shape, Determinism determinism);

}  // namespace trident
