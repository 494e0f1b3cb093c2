// How products become cuBLASLt calls: descriptors derived by hand, limits, names and keys. No library, no device.
#include "device/cuda/cublaslt_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "tests/cuda/cublaslt_fixture.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

constexpr DType kH = DType::kBF16, kW = DType::kF32;

MatmulShape shape(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose tb, DType in = kW, DType out = kW,
                  Accumulate add = Accumulate::kNo) {
  return {m, n, k, ta, tb, in, out, add};
}

// y[R,F] = x[R,H] W[F,H]^T with R = 6 rows, H = 4 inputs, F = 10 outputs. The library multiplies W (stored [10,4] by rows, so
// [4,10] by columns, transposed) by x (stored [6,4] by rows, so [4,6] by columns): [10,4][4,6] = [10,6], which by rows is [6,10].
TEST(CublasLtLayout, ForwardOfALinearLayer) {
  const MatmulLayout l = matmul_layout(shape(6, 10, 4, kN, kT, kH, kH), Epilogue::kNone, F32Products::kF32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_16BF, 4, 10, 4}));
  EXPECT_EQ(l.transpose_a, CUBLAS_OP_T);
  EXPECT_EQ(l.b, (MatrixLayout{CUDA_R_16BF, 4, 6, 4}));
  EXPECT_EQ(l.transpose_b, CUBLAS_OP_N);
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_16BF, 10, 6, 10}));
  EXPECT_EQ(l.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(l.beta, 0.0f);
  EXPECT_EQ(l.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(l.bias_length, 0);
  EXPECT_EQ(l.aux_leading, 0);
}

// dx[R,H] = dy[R,F] W[F,H], neither transposed: W^T [4,10] by columns times dy^T [10,6].
TEST(CublasLtLayout, InputGradientOfALinearLayer) {
  const MatmulLayout l = matmul_layout(shape(6, 4, 10, kN, kN, kH, kH), Epilogue::kNone, F32Products::kF32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_16BF, 4, 10, 4}));
  EXPECT_EQ(l.transpose_a, CUBLAS_OP_N);
  EXPECT_EQ(l.b, (MatrixLayout{CUDA_R_16BF, 10, 6, 10}));
  EXPECT_EQ(l.transpose_b, CUBLAS_OP_N);
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_16BF, 4, 6, 4}));
}

// dW[F,H] += dy[R,F]^T x[R,H]: x^T [4,6] by columns times dy, stored [6,10] by rows, so [10,6] by columns, transposed.
TEST(CublasLtLayout, WeightGradientOfALinearLayer) {
  const MatmulLayout l = matmul_layout(shape(10, 4, 6, kT, kN, kH, kW, Accumulate::kYes), Epilogue::kNone, F32Products::kF32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_16BF, 4, 6, 4}));
  EXPECT_EQ(l.transpose_a, CUBLAS_OP_N);
  EXPECT_EQ(l.b, (MatrixLayout{CUDA_R_16BF, 10, 6, 10}));
  EXPECT_EQ(l.transpose_b, CUBLAS_OP_T);
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_32F, 4, 10, 4}));
  EXPECT_EQ(l.beta, 1.0f);
}

TEST(CublasLtLayout, F16IsAnotherTypeOfTheSameProduct) {
  const MatmulLayout l = matmul_layout(shape(6, 10, 4, kN, kT, DType::kF16, DType::kF16), Epilogue::kNone, F32Products::kTf32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_16F, 4, 10, 4}));
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_16F, 10, 6, 10}));
  EXPECT_EQ(l.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(matmul_layout(shape(10, 4, 6, kT, kN, DType::kF16, kW), Epilogue::kNone, F32Products::kF32).d.type, CUDA_R_32F);
  EXPECT_THROW(check_matmul_shape(shape(2, 2, 2, kN, kN, DType::kF16, kH), Epilogue::kNone), InternalError);
}

TEST(CublasLtLayout, BothTransposed) {
  const MatmulLayout l = matmul_layout(shape(2, 3, 5, kT, kT), Epilogue::kNone, F32Products::kF32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_32F, 5, 3, 5}));  // b is stored [3,5]
  EXPECT_EQ(l.transpose_a, CUBLAS_OP_T);
  EXPECT_EQ(l.b, (MatrixLayout{CUDA_R_32F, 2, 5, 2}));  // a is stored [5,2]
  EXPECT_EQ(l.transpose_b, CUBLAS_OP_T);
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_32F, 3, 2, 3}));
}

// Whatever is transposed: op(A) is [n,k], op(B) [k,m], D [n,m], and no column overlaps the next.
TEST(CublasLtLayout, DescriptorsFitTogether) {
  for (const Transpose ta : {kN, kT}) {
    for (const Transpose tb : {kN, kT}) {
      const MatmulLayout l = matmul_layout(shape(7, 11, 13, ta, tb), Epilogue::kNone, F32Products::kF32);
      const bool a = l.transpose_a == CUBLAS_OP_T, b = l.transpose_b == CUBLAS_OP_T;
      EXPECT_EQ(a ? l.a.columns : l.a.rows, 11);
      EXPECT_EQ(a ? l.a.rows : l.a.columns, 13);
      EXPECT_EQ(b ? l.b.columns : l.b.rows, 13);
      EXPECT_EQ(b ? l.b.rows : l.b.columns, 7);
      EXPECT_EQ(l.d.rows, 11);
      EXPECT_EQ(l.d.columns, 7);
      for (const MatrixLayout& m : {l.a, l.b, l.d}) EXPECT_EQ(m.leading, m.rows);
    }
  }
}

TEST(CublasLtLayout, Tf32IsForF32OperandsAlone) {
  EXPECT_EQ(matmul_layout(shape(2, 2, 2, kN, kN), Epilogue::kNone, F32Products::kTf32).compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(matmul_layout(shape(2, 2, 2, kN, kN), Epilogue::kNone, F32Products::kF32).compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(matmul_layout(shape(2, 2, 2, kN, kN, kH, kW), Epilogue::kNone, F32Products::kTf32).compute, CUBLAS_COMPUTE_32F);
}

TEST(CublasLtLayout, Epilogues) {
  const MatmulShape up = shape(6, 16, 4, kN, kT, kH, kH);
  const MatmulLayout bias = matmul_layout(up, Epilogue::kBias, F32Products::kF32);
  EXPECT_EQ(bias.epilogue, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(bias.bias_length, bias.d.rows) << "the library adds it to every column";
  EXPECT_EQ(bias.aux_leading, 0);
  const MatmulLayout gelu = matmul_layout(up, Epilogue::kBiasGelu, F32Products::kF32);
  EXPECT_EQ(gelu.epilogue, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  EXPECT_EQ(gelu.bias_length, 16);
  EXPECT_EQ(gelu.aux_leading, 16);
  const MatmulLayout gradient = matmul_layout(shape(6, 16, 4, kN, kN, kH, kH), Epilogue::kGeluBackward, F32Products::kF32);
  EXPECT_EQ(gradient.epilogue, CUBLASLT_EPILOGUE_DGELU);
  EXPECT_EQ(gradient.bias_length, 0);
  EXPECT_EQ(gradient.aux_leading, 16);
  // dW[10,4] = dy^T x: the sums of dy over the rows are sums of the library's B over k, one for each column of D.
  const MatmulLayout weight = matmul_layout(shape(10, 4, 6, kT, kN, kH, kW), Epilogue::kBiasGradient, F32Products::kF32);
  EXPECT_EQ(weight.epilogue, CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(weight.bias_length, 10);
  EXPECT_EQ(weight.bias_length, weight.d.columns);
  EXPECT_EQ(weight.aux_leading, 0);
}

TEST(CublasLtLayout, AlignmentIsThatOfTheWorstPointer) {
  alignas(64) static std::byte memory[64];
  EXPECT_EQ(pointer_alignment({memory, memory + 16, memory + 32}), PointerAlignment::kVector);
  EXPECT_EQ(pointer_alignment({memory, nullptr}), PointerAlignment::kVector);
  EXPECT_EQ(pointer_alignment({memory, memory + 8}), PointerAlignment::kElement);
  EXPECT_EQ(pointer_alignment({memory + 2, memory}), PointerAlignment::kElement);
  EXPECT_EQ(matmul_alignments(shape(1, 1, 1, kN, kN, kH, kW), PointerAlignment::kVector), (MatmulAlignments{16, 16}));
  EXPECT_EQ(matmul_alignments(shape(1, 1, 1, kN, kN, kH, kW), PointerAlignment::kElement), (MatmulAlignments{2, 4}));
}

TEST(CublasLtLayout, ReductionsKeepTheContract) {
  const MatmulShape wide = shape(1, 1, 1, kN, kN, kH, kW), narrow = shape(1, 1, 1, kN, kN, kH, kH);
  for (const Determinism determinism : {Determinism::kRequired, Determinism::kNotRequired}) {
    const std::uint32_t of_bf16 = allowed_reductions(narrow, determinism);
    EXPECT_TRUE(reduction_allowed(of_bf16, CUBLASLT_REDUCTION_SCHEME_NONE));
    EXPECT_TRUE(reduction_allowed(of_bf16, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    EXPECT_FALSE(reduction_allowed(of_bf16, CUBLASLT_REDUCTION_SCHEME_INPLACE)) << "partial sums rounded to bf16";
    EXPECT_FALSE(reduction_allowed(of_bf16, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) << "partial sums rounded to bf16";
  }
  EXPECT_FALSE(reduction_allowed(allowed_reductions(wide, Determinism::kRequired), CUBLASLT_REDUCTION_SCHEME_INPLACE));
  EXPECT_TRUE(reduction_allowed(allowed_reductions(wide, Determinism::kRequired), CUBLASLT_REDUCTION_SCHEME_NONE));
  EXPECT_TRUE(reduction_allowed(allowed_reductions(wide, Determinism::kNotRequired), CUBLASLT_REDUCTION_SCHEME_INPLACE));
}

TEST(CublasLtLayout, ProductsAreNamed) {
  EXPECT_EQ(describe(shape(4, 3, 8, kN, kT)), "matmul 4x3x8 nt f32->f32");
  EXPECT_EQ(describe(shape(4, 3, 8, kT, kN, kH, kW, Accumulate::kYes)), "matmul 4x3x8 tn bf16->f32 accumulated");
  EXPECT_EQ(describe(shape(4, 3, 8, kT, kN, kH, kW), Epilogue::kBiasGradient), "matmul 4x3x8 tn bf16->f32 with bgrad");
}

// What changes the call changes the key, and nothing else is in it.
TEST(CublasLtLayout, KeysDifferWhereCallsDo) {
  const MatmulShape base = shape(4, 16, 8, kN, kN, kH, kW);
  const auto key = [](const MatmulShape& s, Epilogue e = Epilogue::kNone, PointerAlignment p = PointerAlignment::kVector,
                      F32Products f = F32Products::kF32, Determinism d = Determinism::kRequired,
                      std::int64_t workspace = 32) { return plan_key(s, e, p, f, d, workspace); };
  EXPECT_EQ(key(base), "4x16x8 nn bf16->f32 beta=0 epilogue=none align=vector products=f32 deterministic workspace=32");
  EXPECT_EQ(key(base, Epilogue::kNone, PointerAlignment::kVector, F32Products::kTf32), key(base)) << "bf16 has no tf32";
  std::set<std::string> keys = {key(base)};
  const auto differs = [&](const std::string& text) { EXPECT_TRUE(keys.insert(text).second) << text; };
  for (const MatmulShape& s : {shape(5, 16, 8, kN, kN, kH, kW), shape(4, 17, 8, kN, kN, kH, kW), shape(4, 16, 9, kN, kN, kH, kW),
                               shape(4, 16, 8, kT, kN, kH, kW), shape(4, 16, 8, kN, kT, kH, kW), shape(4, 16, 8, kN, kN, kH, kH),
                               shape(4, 16, 8, kN, kN, kW, kW), shape(4, 16, 8, kN, kN, kH, kW, Accumulate::kYes)})
    differs(key(s));
  for (const Epilogue e : {Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward, Epilogue::kBiasGradient})
    differs(key(base, e));
  differs(key(base, Epilogue::kNone, PointerAlignment::kElement));
  differs(key(shape(4, 16, 8, kN, kN), Epilogue::kNone, PointerAlignment::kVector, F32Products::kTf32));
  differs(key(base, Epilogue::kNone, PointerAlignment::kVector, F32Products::kF32, Determinism::kNotRequired));
  differs(key(base, Epilogue::kNone, PointerAlignment::kVector, F32Products::kF32, Determinism::kRequired, 64));
}

std::string internal_error(const MatmulShape& s, Epilogue epilogue = Epilogue::kNone) {
  return error_of<InternalError>([&] { check_matmul_shape(s, epilogue); });
}

TEST(CublasLtLayout, MistakesAreNamed) {
  EXPECT_NO_THROW(check_matmul_shape(shape(4, 16, 8, kN, kN, kH, kH), Epilogue::kBiasGelu));
  EXPECT_NO_THROW(check_matmul_shape(shape(0, 3, 8, kN, kN), Epilogue::kNone));
  EXPECT_TRUE(contains(internal_error(shape(-1, 3, 8, kN, kN)), "matmul -1x3x8 nn f32->f32"));
  EXPECT_TRUE(contains(internal_error(shape(4, 3, 8, kN, kN, kW, kH)), "products are of f32, bf16 or f16"));
  EXPECT_TRUE(contains(internal_error(shape(4, 3, 8, kN, kN, DType::kF64, DType::kF64)), "products are of f32, bf16 or f16"));
}

TEST(CublasLtLayout, EpiloguesThatTheLibraryDoesNotTake) {
  constexpr Epilogue kAll[] = {Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward, Epilogue::kBiasGradient};
  for (const Epilogue e : kAll) {
    EXPECT_TRUE(allows(shape(4, 16, 8, kT, kN, kH, kW), e)) << describe(shape(4, 16, 8, kT, kN, kH, kW), e);
    for (const MatmulShape& empty : {shape(0, 16, 8, kT, kN), shape(4, 0, 8, kT, kN), shape(4, 16, 0, kT, kN)})
      EXPECT_FALSE(allows(empty, e)) << describe(empty, e);
    const bool has_aux = e == Epilogue::kBiasGelu || e == Epilogue::kGeluBackward;
    EXPECT_EQ(allows(shape(4, 12, 8, kT, kN), e), !has_aux) << "rows of no multiple of 8 elements";
    EXPECT_EQ(allows(shape(4, 16, 8, kT, kN, kH, kW, Accumulate::kYes), e), e == Epilogue::kBiasGradient)
        << "through the old values";
  }
  EXPECT_TRUE(allows(shape(0, 3, 0, kN, kN, kW, kW, Accumulate::kYes), Epilogue::kNone));
}

TEST(CublasLtLayout, ExtentsBeyondTheLibraryAreRefusedByName) {
  constexpr std::int64_t kMost = 2147483647;
  EXPECT_NO_THROW(check_matmul_shape(shape(kMost, kMost, kMost, kN, kN), Epilogue::kNone));
  const auto message = [](const MatmulShape& s) { return error_of<ConfigError>([&] { check_matmul_shape(s, Epilogue::kNone); }); };
  EXPECT_TRUE(contains(message(shape(kMost + 1, 2, 3, kN, kN)), "m = 2147483648 is more than cuBLASLt's 2147483647"));
  EXPECT_TRUE(contains(message(shape(1, kMost + 1, 3, kN, kN)), "n = 2147483648"));
  EXPECT_TRUE(contains(message(shape(1, 2, kMost + 1, kN, kN)), "k = 2147483648"));
}

}  // namespace
}  // namespace trident
