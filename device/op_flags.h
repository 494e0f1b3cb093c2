// The yes/no choices of operations, spelled out at call sites.
#pragma once

#include <cstdint>

namespace trident {

enum class Transpose : std::uint8_t { kNo, kYes };
enum class Accumulate : std::uint8_t { kNo, kYes };

// What may follow a matrix product in the kernel that makes it. GELU is the tanh form.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          // out[M,N] = product + bias[N] in every row
  kBiasGelu,      // pre[M,N] = product + bias[N]; out = gelu(pre)
  kGeluBackward,  // out[M,N] = product * gelu'(pre)
  kBiasGradient,  // out as without, and the sums of op(a)[M,K] over K: with a = dY^T the bias gradient beside dW = dY^T X
};

}  // namespace trident
