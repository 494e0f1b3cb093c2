#include "device/cuda/cublaslt_layout.h"

#include <array>
#include <limits>

#include "core/at.h"
#include "core/check.h"

namespace trident {

namespace {

// The library counts rows and columns in 32 bits.
constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max();
// The auxiliary matrix of the GELU epilogues has columns of a multiple of this many elements.
constexpr std::int64_t kAuxMultiple = 8;

bool has_aux(Epilogue epilogue) { return epilogue == Epilogue::kBiasGelu || epilogue == Epilogue::kGeluBackward; }

cudaDataType_t cuda_type(DType dtype) {
  return dtype == DType::kBF16 ? CUDA_R_16BF : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

// A row-major [rows, columns] in the library's terms.
MatrixLayout seen_by_columns(std::int64_t rows, std::int64_t columns, DType dtype) {
  return {cuda_type(dtype), columns, rows, columns};
}

// A row-major operand whose op(x) is [rows, columns].
MatrixLayout operand(std::int64_t rows, std::int64_t columns, Transpose transposed, DType dtype) {
  return transposed == Transpose::kYes ? seen_by_columns(columns, rows, dtype) : seen_by_columns(rows, columns, dtype);
}

cublasOperation_t operation(Transpose transpose) { return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N; }

std::string_view name_of(Epilogue epilogue) {
  constexpr std::array<std::string_view, 6> kNames{"none", "bias", "gelu_aux_bias", "dgelu", "summands", "bgrad"};
  return at(kNames, epilogue);
}

cublasLtEpilogue_t library_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone: case Epilogue::kSummands: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasGelu: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluBackward: return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kBiasGradient: return CUBLASLT_EPILOGUE_BGRADB;  // of our a, which is the library's B
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// Sizes, types and transposes: "4x3x8 nt bf16->f32".
std::string product_name(const MatmulShape& s) {
  return fmt::format("{}x{}x{} {}{} {}->{}", s.m, s.n, s.k, s.transpose_a == Transpose::kYes ? 't' : 'n',
                     s.transpose_b == Transpose::kYes ? 't' : 'n', to_string(s.in), to_string(s.out));
}

}  // namespace

PointerAlignment pointer_alignment(std::initializer_list<const void*> operands) {
  for (const void* p : operands) {
    if (reinterpret_cast<std::uintptr_t>(p) % kVectorAlignment != 0) return PointerAlignment::kElement;
  }
  return PointerAlignment::kVector;
}

std::string describe(const MatmulShape& s, Epilogue epilogue) {
  std::string text = fmt::format("matmul {}{}", product_name(s), s.accumulate == Accumulate::kYes ? " accumulated" : "");
  if (epilogue != Epilogue::kNone) text += fmt::format(" with {}", name_of(epilogue));
  return text;
}

void check_matmul_shape(const MatmulShape& s, Epilogue epilogue) {
  TRIDENT_CHECK(s.m >= 0 && s.n >= 0 && s.k >= 0, "{}", describe(s, epilogue));
  TRIDENT_CHECK(
      (s.in == DType::kF32 || s.in == DType::kBF16 || s.in == DType::kF16) && (s.out == DType::kF32 || s.out == s.in),
      "{}: products are of f32, bf16 or f16, their results f32 or of the same type", describe(s, epilogue));
  for (const auto& [name, extent] : {std::pair("m", s.m), {"n", s.n}, {"k", s.k}}) {
    if (extent <= kMaxExtent) continue;
    throw ConfigError(fmt::format("{}: {} = {} is more than cuBLASLt's {} rows or columns; make the micro-batch smaller",
                                  describe(s, epilogue), name, extent, kMaxExtent));
  }
}

bool allows(const MatmulShape& s, Epilogue epilogue) {
  if (epilogue == Epilogue::kNone) return true;
  if (is_empty(s) || (has_aux(epilogue) && s.n % kAuxMultiple != 0)) return false;
  return epilogue == Epilogue::kBiasGradient || s.accumulate == Accumulate::kNo;
}

MatmulLayout matmul_layout(const MatmulShape& s, Epilogue epilogue, F32Products products) {
  MatmulLayout layout;
  layout.a = operand(s.k, s.n, s.transpose_b, s.in);
  layout.b = operand(s.m, s.k, s.transpose_a, s.in);
  layout.d = seen_by_columns(s.m, s.n, s.out);
  layout.transpose_a = operation(s.transpose_b);
  layout.transpose_b = operation(s.transpose_a);
  const bool tf32 = s.in == DType::kF32 && products == F32Products::kTf32;
  layout.compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  layout.alpha = s.scale;
  layout.beta = s.accumulate == Accumulate::kYes ? 1.0f : 0.0f;
  layout.epilogue = library_epilogue(epilogue);
  if (epilogue == Epilogue::kBias || epilogue == Epilogue::kBiasGelu) layout.bias_length = s.n;
  if (epilogue == Epilogue::kBiasGradient) layout.bias_length = s.m;
  if (has_aux(epilogue)) layout.aux_leading = s.n;
  return layout;
}

MatmulAlignments matmul_alignments(const MatmulShape& s, PointerAlignment alignment) {
  if (alignment == PointerAlignment::kVector) return {kVectorAlignment, kVectorAlignment};
  return {static_cast<std::uint32_t>(size_of(s.in)), static_cast<std::uint32_t>(size_of(s.out))};
}

std::uint32_t allowed_reductions(const MatmulShape& s, Determinism determinism) {
  // Partial sums of the other schemes are of the output's type and, in place, added as they come.
  if (determinism == Determinism::kRequired || s.out != DType::kF32) return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  return CUBLASLT_REDUCTION_SCHEME_MASK;
}

std::string plan_key(const MatmulShape& s, Epilogue epilogue, PointerAlignment alignment, F32Products products,
                     Determinism determinism, std::int64_t workspace_limit) {
  return fmt::format("{} beta={} epilogue={} align={} products={} {} workspace={}", product_name(s),
                     s.accumulate == Accumulate::kYes ? 1 : 0, name_of(epilogue),
                     alignment == PointerAlignment::kVector ? "vector" : "element",
                     s.in == DType::kF32 && products == F32Products::kTf32 ? "tf32" : "f32",
                     determinism == Determinism::kRequired ? "deterministic" : "any", workspace_limit);
}

}  // namespace trident
