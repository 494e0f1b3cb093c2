// The choices of operations, spelled out at call sites.
#pragma once

#include <cstdint>

namespace trident {

enum class Transpose : std::uint8_t { kNo, kYes };
enum class Accumulate : std::uint8_t { kNo, kYes };

// Operations that a matmul kernel may carry out after its product, in the names of FusedMatmul (ops.h). GELU is the tanh form.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          // product.out[M,N] = op(a) op(b) + bias[N] in every row
  kBiasGelu,      // product.out[M,N] as with kBias; result[M,N] = gelu(product.out)
  kGeluBackward,  // result[M,N] = op(a) op(b) * gelu'(pre)
  kSummands,      // product.out[M,N] = op(a) op(b) + residual[M,N] + inner[M,R] op(outer)[R,N], the last two or one of them
  kBiasGradient,  // product.out as without; result[M] = sums of op(a)[M,K] over K: dY^T's, beside dW = dY^T X
};

}  // namespace trident
