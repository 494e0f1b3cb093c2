// Products by cuBLASLt that are asked for wrongly, or that the library or the machine cannot do.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/cuda/cublaslt_fixture.h"
#include "tests/cuda/simulated/cublaslt.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(CublasLtFailures, MistakesAreNamed) {
  MatmulFixture f;
  const DeviceTensor a(TestTensor(kW, {4, 8})), b(TestTensor(kW, {8, 3})), out(TestTensor(kW, {4, 3})),
      half(TestTensor(kH, {8, 3}));
  const TestTensor on_host(kW, {4, 8});
  const auto message = [&](TensorView o, ConstTensorView x, Transpose tx, ConstTensorView y, Transpose ty) {
    return error_of<InternalError>([&] { f.matmul.run(f.stream.get(), o, x, tx, y, ty, Accumulate::kNo, TensorView()); });
  };
  EXPECT_TRUE(contains(message(out.view(), a.view(), kN, b.view(), kN), "matmul 4x3x8 nn f32->f32 was not prepared"));
  EXPECT_TRUE(contains(message(out.view(), a.view(), kN, b.view(), kT), "do not fit together"));
  EXPECT_TRUE(contains(message(out.view(), a.view(), kN, half.view(), kN), "b is bf16"));
  EXPECT_TRUE(contains(message(a.view(), a.view(), kN, b.view(), kN), "expected [4, 3]"));
  EXPECT_TRUE(contains(message(out.view(), on_host.view(), kN, b.view(), kN), "a lies in host memory"));
  EXPECT_THROW(f.matmul.prepare({4, 3, 8, kN, kN, kW, kH, Accumulate::kNo}), InternalError);
  EXPECT_THROW(f.matmul.prepare({-1, 3, 8, kN, kN, kW, kW, Accumulate::kNo}), InternalError);
  EXPECT_THROW(f.matmul.prepare({std::int64_t{1} << 31, 3, 8, kN, kN, kW, kW, Accumulate::kNo}), ConfigError);
}

TEST(CublasLtFailures, WorkspaceMistakesAreNamed) {
  MatmulFixture f;
  const MatmulShape s{32, 32, 64, kN, kN, kW, kW, Accumulate::kNo};
  const std::int64_t needed = f.matmul.prepare(s);
  ASSERT_GT(needed, 0);
  const DeviceTensor a(TestTensor(kW, {32, 64})), b(TestTensor(kW, {64, 32})), out(TestTensor(kW, {32, 32}));
  const DeviceTensor workspace(TestTensor(DType::kU8, {needed + 16}));
  const auto message = [&](TensorView w) {
    return error_of<InternalError>(
        [&] { f.matmul.run(f.stream.get(), out.view(), a.view(), kN, b.view(), kN, Accumulate::kNo, w); });
  };
  EXPECT_TRUE(contains(message(workspace.view().range(0, needed - 1)), "a workspace of 8191 bytes, 8192 needed"));
  EXPECT_TRUE(contains(message(workspace.view().range(4, needed)), "must lie at a multiple of 16 bytes"));
  EXPECT_EQ(message(workspace.view().range(16, needed)), "no error");
  f.stream.synchronize();
}

TEST(CublasLtFailures, EpilogueMistakesAreNamed) {
  MatmulFixture f;
  const MatmulShape s{4, 8, 16, kN, kN, kW, kW, Accumulate::kNo};
  const DeviceTensor a(TestTensor(kW, {4, 16})), b(TestTensor(kW, {16, 8})), out(TestTensor(kW, {4, 8})), bias(TestTensor(kW, {8}));
  const DeviceTensor workspace(TestTensor(DType::kU8, {f.matmul.prepare_fused(s, Epilogue::kBiasGelu).value()}));
  const DeviceTensor second(TestTensor(kW, {4, 8})), host_like(TestTensor(kH, {8}));
  const auto message = [&](Epilogue epilogue, ConstTensorView bias_view, TensorView result) {
    return error_of<InternalError>([&] {
      f.matmul.run_fused(f.stream.get(), {.epilogue = epilogue,
                                          .product = {out.view(), a.view(), kN, b.view(), kN, Accumulate::kNo, workspace.view()},
                                          .bias = bias_view,
                                          .pre = {},
                                          .result = result});
    });
  };
  EXPECT_EQ(message(Epilogue::kBiasGelu, bias.view(), second.view()), "no error");
  EXPECT_TRUE(contains(message(Epilogue::kBiasGelu, a.view(), second.view()), "bias is f32 [4, 16], expected 8 elements"));
  EXPECT_TRUE(
      contains(message(Epilogue::kBiasGelu, host_like.view(), second.view()), "bias is bf16 [8], expected 8 elements of f32"));
  EXPECT_TRUE(contains(message(Epilogue::kBiasGelu, bias.view(), bias.view()), "the activation is f32 [8], expected 32 elements"));
  EXPECT_TRUE(contains(message(Epilogue::kGeluBackward, {}, second.view()), "pre is"));
  EXPECT_TRUE(contains(message(Epilogue::kBiasGradient, {}, bias.view()), "the bias gradient is f32 [8], expected 4 elements"));
  EXPECT_TRUE(contains(message(Epilogue::kBias, bias.view(), {}), "matmul 4x8x16 nn f32->f32 with bias was not prepared"));
  f.stream.synchronize();
}

TEST(CublasLtFailures, NoDriver) {
  simulated::configure({.driver = simulated::Driver::kNone});
  EXPECT_TRUE(contains(error_of<ConfigError>([] { CublasLtHandle handle(0); }), "driver"));
  simulated::reset();
  simulated::fail_next("cublasLtCreate", CUBLAS_STATUS_NOT_INITIALIZED);
  const std::string message = error_of<ConfigError>([] { CublasLtHandle handle(0); });
  EXPECT_TRUE(contains(message, "cuBLASLt on device 0: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED")) << message;
  EXPECT_TRUE(contains(message, "nvidia-smi")) << message;
  EXPECT_EQ(simulated::cublaslt_counts().handles, 0);
}

// Every call of prepare() that the library can refuse.
TEST(CublasLtFailures, FailuresWhilePlanningNameTheProduct) {
  const MatmulShape s{4, 8, 16, kN, kN, kW, kW, Accumulate::kNo};
  for (const char* function :
       {"cublasLtMatmulDescInit", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutInit", "cublasLtMatmulPreferenceInit",
        "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic"}) {
    MatmulFixture f;
    simulated::fail_next(function, CUBLAS_STATUS_INTERNAL_ERROR);
    const std::string message = error_of<InternalError>([&] { f.matmul.prepare(s); });
    EXPECT_TRUE(contains(message, std::string(function) + " for matmul 4x8x16 nn f32->f32: CUBLAS_STATUS_INTERNAL_ERROR"))
        << message;
    check_exact(f, s);  // nothing half made is kept
  }
}

TEST(CublasLtFailures, FailuresAreTheMachinesOrOurs) {
  const MatmulShape s{4, 8, 16, kN, kN, kW, kW, Accumulate::kNo};
  MatmulFixture f;
  f.matmul.prepare(s);
  const auto message = [&](cublasStatus_t status, auto error) {
    simulated::fail_next("cublasLtMatmul", status);
    return error_of<decltype(error)>([&] { run(f, s, Operands::integers(s)); });
  };
  const ConfigError machine("");
  const InternalError ours("");
  EXPECT_TRUE(contains(message(CUBLAS_STATUS_ALLOC_FAILED, machine), "device memory is used up"));
  EXPECT_TRUE(contains(message(CUBLAS_STATUS_ARCH_MISMATCH, machine), "this GPU and this version of cuBLASLt do not have it"));
  EXPECT_TRUE(contains(message(CUBLAS_STATUS_NOT_SUPPORTED, machine), "CUBLAS_STATUS_NOT_SUPPORTED"));
  EXPECT_TRUE(contains(message(CUBLAS_STATUS_EXECUTION_FAILED, ours), "CUDA_LAUNCH_BLOCKING=1"));
  const std::string wrong = message(CUBLAS_STATUS_INVALID_VALUE, ours);
  EXPECT_TRUE(contains(wrong, "cublasLtMatmul for matmul 4x8x16 nn f32->f32: CUBLAS_STATUS_INVALID_VALUE (")) << wrong;
  check_exact(f, s);
}

TEST(CublasLtFailures, AProductTheLibraryDoesNotHave) {
  const MatmulShape s{4, 8, 16, kN, kN, kW, kW, Accumulate::kNo};
  MatmulFixture f;
  simulated::fail_next("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
  const std::string message = error_of<ConfigError>([&] { f.matmul.prepare(s); });
  EXPECT_TRUE(contains(message, "it has no algorithm for matmul 4x8x16 nn f32->f32 with at most 33554432 bytes")) << message;
  // Only operands that are not aligned: an error when there are some.
  simulated::fail_next("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED, 1);
  f.matmul.prepare(s);
  check_exact(f, s);
  EXPECT_TRUE(contains(error_of<InternalError>([&] { check_exact(f, s, {1, 0, 0}); }), "not at multiples of 16 bytes"));
}

// An algorithm whose reduction cannot be read might be any.
TEST(CublasLtFailures, ProposalsThatCannotBeJudgedAreNotTaken) {
  const MatmulShape s{4, 8, 64, kN, kN, kW, kW, Accumulate::kNo};
  MatmulFixture f;
  simulated::fail_next("cublasLtMatmulAlgoConfigGetAttribute", CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(f.matmul.prepare(s), 1024) << "the second proposal";
  check_exact(f, s);
}

}  // namespace
}  // namespace trident
