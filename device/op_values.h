// Requests to operations as values: shapes and operands of matmuls and attention.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "device/op_flags.h"
#include "device/op_numbers.h"

namespace trident {

// out[M,N] (+)= scale op(a) op(b), op(a) [M,K], op(b) [K,N].
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::kNo, transpose_b = Transpose::kNo;
  DType in = DType::kF32;   // of a and b: f32, bf16 or f16
  DType out = DType::kF32;  // f32 or as in; Accumulate::kYes into 16 bits rounds after the sum
  Accumulate accumulate = Accumulate::kNo;
  float scale = 1.0f;       // not 1: of no product that something follows
  bool operator==(const MatmulShape&) const = default;
};

// The answer to announcing a matmul and what follows it.
struct PreparedProduct {
  std::int64_t workspace = 0;  // bytes; enough also for the product alone
  bool fused = false;          // one kernel does both, where operands lie at multiples of 16 bytes; else several do
};

// The operands of op::Matmul.
struct MatmulOperands {
  TensorView out;
  ConstTensorView a;
  Transpose transpose_a = Transpose::kNo;
  ConstTensorView b;
  Transpose transpose_b = Transpose::kNo;
  Accumulate accumulate = Accumulate::kNo;
  TensorView workspace;
  float scale = 1.0f;
};

// A product and what follows it, for Ops::try_fused. Views that the epilogue does not have are empty.
struct FusedMatmul {
  Epilogue epilogue = Epilogue::kNone;
  MatmulOperands product;
  ConstTensorView bias = {};  // kBias, kBiasGelu
  ConstTensorView pre = {};   // kGeluBackward
  TensorView result = {};     // kBiasGelu: the activation; kGeluBackward: the gradient of pre; kBiasGradient: of the bias
  // kSummands; `outer` is transposed as the product's b is. Views of nothing are not added.
  ConstTensorView residual = {}, inner = {}, outer = {};

  std::int64_t rank() const { return inner.shape().rank() == 0 ? 0 : inner.shape()[1]; }
};

// The columns of rows at which the heads of q, k, v and of their gradients begin.
struct HeadColumns {
  std::int64_t q = 0, k = 0, v = 0;
};

// Attention of Sq queries over Sk keys. Query i has global position query_offset + i, key j key_offset + j; with `causal` a query
// sees keys at positions <= its own. N % K == 0; query head n uses key/value head n / (N/K). A query that sees no key gets
// output 0 and log-sum-exp -infinity.
//
// Over 0, `interval` says that queries see intervals: an operand, first_key i32 [B, Sq], names the global position of the first key
// that each query sees; a sample's never decrease, and `causal` is true. flops() counts the last `interval` keys of each query.
// Over 0, `softcap` bounds the scaled scores: softcap * tanh(score / softcap) takes their place.
struct AttentionShape {
  std::int64_t batch = 0, query_heads = 0, kv_heads = 0, query_length = 0, key_length = 0, head_dim = 0;
  std::int64_t query_offset = 0, key_offset = 0;
  std::int64_t interval = 0;  // keys; 0: first_key is empty
  float scale = 1.0f, softcap = 0.0f;
  bool causal = true;
  DType dtype = DType::kF32;
  bool operator==(const AttentionShape&) const = default;
};

}  // namespace trident
