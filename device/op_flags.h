// The choices of operations, spelled out at call sites.
#pragma once

#include <cstdint>

namespace trident {

enum class Transpose : std::uint8_t { kNo, kYes };
enum class Accumulate : std::uint8_t { kNo, kYes };

// What may follow a matrix product in the kernel that makes it, in the names of FusedMatmul (ops.h). GELU is the tanh form.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          // product.out[M,N] = op(a) op(b) + bias[N] in every row
  kBiasGelu,      // product.out[M,N] as with kBias; result[M,N] = gelu(product.out)
  kGeluBackward,  // result[M,N] = op(a) op(b) * gelu'(pre)
  kBiasGradient,  // product.out as without; result[M] = sums of op(a)[M,K] over K: dY^T's, beside dW = dY^T X
};

// How an update makes weights from gradients: UpdateParams (op_values.h) has the equations, row_kernels/optimizer.inl computes
// them.
enum class UpdateFormula : std::uint8_t { kAdamW, kLion };
// X(formula) of every one, and how many numbers each keeps of an element.
#define TRIDENT_UPDATE_FORMULAS(X) X(kAdamW) X(kLion)
template <UpdateFormula formula>
inline constexpr int kStatesOf = 1;
template <>
inline constexpr int kStatesOf<UpdateFormula::kAdamW> = 2;
inline constexpr int kMostStatesOfFormulas = 2;

}  // namespace trident
