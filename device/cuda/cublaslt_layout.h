// How a row-major product becomes a cuBLASLt call. Pure functions: no library is asked, no memory touched.
//
// cuBLASLt sees column-major matrices. A dense row-major [rows, columns] is, byte for byte, a column-major [columns, rows] whose
// leading dimension is `columns`; so out[M,N] = op(a)[M,K] op(b)[K,N] is asked for as out^T[N,M] = op(b)^T[N,K] op(a)^T[K,M]: the
// library's A is our b, its B our a, its m is N, its n is M, and an operand that we transpose is one that the library transposes.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/cuda_options.h"
#include "device/ops.h"

namespace trident {

// How f32 operands are multiplied (products of bf16 and of f16 are exact in f32 either way; sums are always f32).
enum class F32Products : std::uint8_t {
  kF32,
  kTf32,  // operands rounded to 10 bits of mantissa: tensor cores
};

// How the addresses of a call's operands are aligned: what an algorithm may rely on.
enum class PointerAlignment : std::uint8_t {
  kVector,   // all at multiples of kVectorAlignment
  kElement,  // only at multiples of their element size
};
inline constexpr std::int64_t kVectorAlignment =
    16;  // bytes: the widest load of a thread, and what the copy engine of a block asks for
PointerAlignment pointer_alignment(std::initializer_list<const void*> operands);

// A column-major matrix.
struct MatrixLayout {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0;
  std::int64_t leading = 0;  // elements from one column to the next
  bool operator==(const MatrixLayout&) const = default;
};

// A product in the library's terms: D = alpha op(A) op(B) + beta C with C = D in place.
struct MatmulLayout {
  MatrixLayout a, b, d;  // a: our b; b: our a
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  float alpha = 1, beta = 0;  // f32 in host memory
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int64_t bias_length = 0;  // elements behind the bias pointer, of the type of d; 0: no such pointer
  std::int32_t multiprocessors = 0;  // for how many the library chooses and launches; 0: all of the GPU
  std::int64_t aux_leading = 0;  // leading dimension of the auxiliary matrix; 0: no such matrix
  bool operator==(const MatmulLayout&) const = default;
};

// "matmul 4x3x8 nt bf16->f32 accumulated", for messages; with the epilogue's name if there is one.
std::string describe(const MatmulShape& shape, Epilogue epilogue = Epilogue::kNone);

// Nothing if the contract of Ops::prepare_matmul and the library allow this product. InternalError for a mistake of the caller
// (types, negative extents, an epilogue that does not go with the rest), ConfigError for extents beyond the library's 32 bits.
void check_matmul_shape(const MatmulShape& shape, Epilogue epilogue);

// Whether the library can be asked for this epilogue of a checked product: not of one without elements, nor onto old values (they
// would go through it), and its auxiliary matrix has rows of a multiple of 8 elements.
bool allows(const MatmulShape& shape, Epilogue epilogue);

// Whether there is nothing to multiply: out is empty, or a sum of no products.
inline bool is_empty(const MatmulShape& s) { return s.m == 0 || s.n == 0 || s.k == 0; }

// The call for a checked, non-empty shape.
MatmulLayout matmul_layout(const MatmulShape& shape, Epilogue epilogue, F32Products products);

// Alignments (bytes) that the library may assume of its A and B (`in`) and its C and D (`out`).
struct MatmulAlignments {
  std::uint32_t in = 0, out = 0;
  bool operator==(const MatmulAlignments&) const = default;
};
MatmulAlignments matmul_alignments(const MatmulShape& shape, PointerAlignment alignment);

// The ways (a mask of cublasLtReductionScheme_t) in which an algorithm that splits K may put its partial sums together. Rounding
// them to 16 bits breaks "rounded once"; adding them in the order they arrive breaks "same bits".
std::uint32_t allowed_reductions(const MatmulShape& shape, Determinism determinism);
// Whether an algorithm with this scheme stays within them. One sequence without partial sums (scheme 0) always does.
inline bool reduction_allowed(std::uint32_t allowed, std::uint32_t scheme) { return (scheme & ~allowed) == 0; }

// A choice of algorithm depends on these besides device and library version: its key in the autotune file.
std::string plan_key(const MatmulShape& shape, Epilogue epilogue, PointerAlignment alignment, F32Products products,
                     Determinism determinism, std::int64_t workspace_limit);

}  // namespace trident
