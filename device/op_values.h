// What operations are asked for, as values: shapes of products and attention, where dropout and rounding draw, numbers of an
// update.
#pragma once

#include <cstdint>
#include <optional>

#include "core/philox.h"
#include "core/tensor_view.h"
#include "device/op_flags.h"

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

// What came of announcing a product and what follows it.
struct PreparedProduct {
  std::int64_t workspace = 0;  // bytes; enough also for the product alone
  bool fused = false;          // one kernel does both, where operands lie at multiples of 16 bytes; else several do
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

// An update of weights p from their gradient g. What a formula does not name is not read.
// - AdamW (Loshchilov and Hutter 2019, algorithm 2 with bias correction): m, v moments; p -= lr*(mhat/(sqrt(vhat)+eps) + decay*p).
// - Lion (Chen et al. 2023, algorithm 2): p -= lr*(sign(beta1*m + (1-beta1)*g) + decay*p), then m = beta2*m + (1-beta2)*g; sign(0)
// = 0.
struct UpdateParams {
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  float grad_scale = 1;       // multiplies the gradient first: clipping and 1/loss scale
  float bias_correction1 = 1;                    // AdamW: 1/(1 - beta1^t)
  float bias_correction2 = 1;                    // AdamW: 1/(1 - beta2^t)
  std::optional<StochasticRounding> rounding{};  // of param, which is bf16; nothing: to nearest
};

}  // namespace trident
