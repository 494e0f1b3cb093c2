// Matrix products by cuBLASLt: epilogues, plans, determinism and mistakes. Layouts, types and random operands are cases of
// tests/conformance, which run on this library, too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/cublaslt_fixture.h"
#include "tests/cuda/simulated/cublaslt.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

void check_layouts(MatmulFixture& f, std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const auto& [in, out] : {std::pair(kW, kW), {kH, kW}, {kH, kH}, {kF16, kW}, {kF16, kF16}})
    for (const Transpose ta : {kN, kT})
      for (const Transpose tb : {kN, kT})
        for (const Accumulate add : {Accumulate::kNo, Accumulate::kYes}) check_exact(f, {m, n, k, ta, tb, in, out, add});
}

TEST(CublasLtMatmul, WithoutDeterminismEveryLayoutAndTypeIsExactOnIntegers) {
  MatmulFixture f({.determinism = Determinism::kNotRequired});
  check_layouts(f, 7, 1, 33);
  check_layouts(f, 33, 65, 129);
}

TEST(CublasLtMatmul, LongWeightGradientsAreExact) {
  MatmulFixture f;
  for (const Accumulate add : {Accumulate::kNo, Accumulate::kYes})
    for (const std::int64_t tokens : {511, 512, 700, 776}) check_exact(f, {40, 24, tokens, kT, kN, kH, kW, add});
}

TEST(CublasLtMatmul, EmptyExtentsNeedNoLibrary) {
  MatmulFixture f;
  const std::int64_t before = simulated::cublaslt_counts().heuristics;
  check_layouts(f, 0, 4, 3);
  check_layouts(f, 4, 0, 3);
  check_layouts(f, 4, 3, 0);
  check_layouts(f, 0, 0, 0);
  EXPECT_EQ(simulated::cublaslt_counts().heuristics, before);
  EXPECT_EQ(f.matmul.prepare({4, 3, 0, kN, kN, kW, kW, Accumulate::kNo}), 0);
}

// Activations are [S,B,H]: rows are what all but the last dimension count.
TEST(CublasLtMatmul, LeadingDimensionsAreRows) {
  MatmulFixture f;
  const MatmulShape s{6, 16, 8, kN, kT, kW, kW, Accumulate::kNo};
  const Operands x = Operands::integers(s);
  const DeviceTensor a(x.a), b(x.b), out(x.old), workspace(TestTensor(DType::kU8, {f.matmul.prepare(s)}));
  f.matmul.run(f.stream.get(), {out.view().reshape({3, 2, 16}), a.view().reshape({2, 3, 8}), kN, b.view(), kT, Accumulate::kNo,
                                workspace.view()});
  f.stream.synchronize();
  EXPECT_EQ(out.download().values(), x.reference(s));
}

TEST(CublasLtMatmul, OperandsMayLieAnywhere) {
  MatmulFixture f;
  for (const DType in : {kW, kH, kF16}) {
    const MatmulShape s{16, 24, 32, kN, kT, in, in, Accumulate::kYes};
    for (const Shifts shifts : {Shifts{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {3, 5, 7}, {4, 8, 16}}) check_exact(f, s, shifts);
  }
}

TEST(CublasLtMatmul, TheBitsAreTheSameWhateverRanBeforeAndOnEveryVectorBoundary) {
  for (const DType in : {kW, kH, kF16}) {
    MatmulFixture f, fresh;
    const MatmulShape s{104, 72, 520, kT, kN, in, kW, Accumulate::kNo};
    const Operands x = Operands::random(s);
    const TestTensor first = run(f, s, x);
    check_exact(f, {9, 9, 9, kN, kN, in, kW, Accumulate::kNo});
    EXPECT_TRUE(run(f, s, x).same_bits(first));
    EXPECT_TRUE(run(fresh, s, x).same_bits(first));
    EXPECT_TRUE(run(f, s, x, {4, 8, 16}).same_bits(first)) << "multiples of 16 bytes";
  }
}

// Partial sums that are added as they arrive are for those who allow them, and never for results of bf16, which they would round
// twice.
TEST(CublasLtMatmul, DeterminismChoosesTheAlgorithm) {
  const MatmulShape wide{32, 32, 512, kN, kT, kH, kW, Accumulate::kNo}, narrow{32, 32, 512, kN, kT, kH, kH, Accumulate::kNo};
  const auto bits_repeat = [](MatmulFixture& f, const MatmulShape& s) {
    const Operands x = Operands::random(s);
    const TestTensor first = run(f, s, x);
    bool same = true;
    for (int i = 0; i < 4; ++i) same = same && run(f, s, x).same_bits(first);
    return same;
  };
  MatmulFixture strict;
  EXPECT_TRUE(bits_repeat(strict, wide));
  EXPECT_TRUE(bits_repeat(strict, narrow));
  MatmulFixture free({.determinism = Determinism::kNotRequired});
  EXPECT_TRUE(bits_repeat(free, narrow));
  EXPECT_FALSE(bits_repeat(free, wide)) << "the simulated library must show what the filter is for";
}

TEST(CublasLtMatmul, Tf32RoundsF32OperandsAndNoOthers) {
  MatmulFixture f({.f32_products = F32Products::kTf32}), exact;
  const MatmulShape s{8, 8, 4, kN, kT, kW, kW, Accumulate::kNo};
  Operands x = Operands::random(s);
  x.a.fill(0.0), x.b.fill(0.0);
  x.a.set(0, 1.0 + 0x1p-10), x.a.set(4, 1.0 + 0x1p-11 + 0x1p-20);
  x.b.set(0, 1.0);
  EXPECT_EQ(run(f, s, x).at(0), 1.0 + 0x1p-10);
  EXPECT_EQ(run(f, s, x).at(8), 1.0 + 0x1p-10) << "rounded to 10 bits";
  EXPECT_EQ(run(exact, s, x).at(8), 1.0 + 0x1p-11 + 0x1p-20);
  check_exact(f, {16, 16, 16, kN, kN, kH, kW, Accumulate::kNo});
}

TEST(CublasLtMatmul, PlansAreMadeOnce) {
  MatmulFixture f;
  const MatmulShape s{16, 24, 32, kN, kT, kH, kH, Accumulate::kNo};
  const auto asked = [] { return simulated::cublaslt_counts().heuristics; };
  const std::int64_t start = asked();
  const std::int64_t workspace = f.matmul.prepare(s);
  EXPECT_EQ(asked(), start + 2) << "for aligned operands and for others";
  EXPECT_EQ(f.matmul.prepare(s), workspace);
  check_exact(f, s);
  check_exact(f, s, {1, 1, 1});
  EXPECT_EQ(asked(), start + 2);
  // Each of these is another product.
  MatmulShape other = s;
  other.accumulate = Accumulate::kYes;
  f.matmul.prepare(other);
  EXPECT_EQ(asked(), start + 4);
  other.out = kW;
  f.matmul.prepare(other);
  EXPECT_EQ(asked(), start + 6);
  f.matmul.prepare_fused(s, Epilogue::kBias);
  EXPECT_EQ(asked(), start + 7) << "for aligned operands alone";
}

TEST(CublasLtMatmul, WorkspaceStaysWithinTheLimit) {
  const MatmulShape s{32, 32, 64, kN, kT, kW, kW, Accumulate::kNo};
  EXPECT_EQ(MatmulFixture().matmul.prepare(s), 2 * 32 * 32 * 4) << "two f32 partial sums";
  EXPECT_EQ(MatmulFixture({.workspace_limit = 2048}).matmul.prepare(s), 1024);
  MatmulFixture none({.workspace_limit = 0});
  EXPECT_EQ(none.matmul.prepare(s), 0);
  check_exact(none, s);
}

TEST(CublasLtMatmul, RanksAsThreadsOnTheirOwnDevices) {
  simulated::configure({.devices = 2});
  const auto rank = [](int device) {
    MatmulFixture f({}, device);
    check_exact(f, {33, 65, 129, kN, kT, kH, kH, Accumulate::kNo});
    check_exact(f, {40, 24, 64, kT, kN, kH, kW, Accumulate::kYes});
  };
  std::vector<std::thread> ranks;
  for (const int device : {0, 1, 1}) ranks.emplace_back(rank, device);
  for (std::thread& r : ranks) r.join();
  simulated::reset();
  EXPECT_EQ(simulated::cublaslt_counts().handles, 0) << "every handle has an owner";
}

// Whatever device the thread worked on before.
TEST(CublasLtMatmul, CallsGoToTheirOwnDevice) {
  simulated::configure({.devices = 2});
  {
    MatmulFixture f({}, 1);
    const MatmulShape s{16, 24, 32, kN, kT, kW, kW, Accumulate::kNo};
    const Operands x = Operands::integers(s);
    const DeviceTensor a(x.a, 0, 1), b(x.b, 0, 1), out(x.old, 0, 1);
    use_cuda_device(0);
    const std::int64_t bytes = f.matmul.prepare(s);
    EXPECT_EQ(f.matmul.prepare({16, 24, 0, kN, kT, kW, kW, Accumulate::kNo}), 0);
    const DeviceTensor workspace(TestTensor(DType::kU8, {bytes}), 0, 1);
    use_cuda_device(0);
    f.matmul.run(f.stream.get(), {out.view(), a.view(), kN, b.view(), kT, Accumulate::kNo, workspace.view()});
    f.stream.synchronize();
    EXPECT_EQ(out.download().values(), x.reference(s));
  }
  simulated::reset();
}

// ---- epilogues

double gelu(double x) { return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

struct EpilogueResult {
  TestTensor out, bias, aux;  // what cuBLASLt's manual calls D, bias and aux
};

// `aux`: what lies in the second matrix before.
EpilogueResult run_epilogue(MatmulFixture& f, const MatmulShape& s, Epilogue epilogue, const Operands& x, const TestTensor& bias,
                            const TestTensor& aux) {
  const DeviceTensor a(x.a), b(x.b), out(x.old), d_bias(bias), d_aux(aux);
  const DeviceTensor workspace(TestTensor(DType::kU8, {f.matmul.prepare_fused(s, epilogue).value()}));
  FusedMatmul fused;
  fused.epilogue = epilogue;
  fused.product = {out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b, s.accumulate, workspace.view()};
  if (epilogue == Epilogue::kBias || epilogue == Epilogue::kBiasGelu) fused.bias = d_bias.view();
  if (epilogue == Epilogue::kBiasGelu) fused.product.out = d_aux.view(), fused.result = out.view();
  if (epilogue == Epilogue::kGeluBackward) fused.pre = d_aux.view(), fused.result = out.view();
  if (epilogue == Epilogue::kBiasGradient) fused.result = d_bias.view();
  EXPECT_TRUE(f.matmul.can_fuse(fused));
  {
    const NoAllocationScope step("matmul");
    f.matmul.run_fused(f.stream.get(), fused);
  }
  f.stream.synchronize();
  EXPECT_TRUE(out.guards_intact() && d_bias.guards_intact() && d_aux.guards_intact());
  return {out.download(), d_bias.download(), d_aux.download()};
}

void expect_near(const TestTensor& actual, const std::vector<double>& expected, const char* what) {
  const double tolerance = actual.view().dtype() == kH ? 0.02 : 1e-4;
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual.at(static_cast<std::int64_t>(i)), expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " " << i;
}

TEST(CublasLtMatmul, ForwardEpiloguesAreFused) {
  for (const DType out : {kW, kH}) {
    MatmulFixture f;
    const MatmulShape s{12, 16, 24, kN, kT, kH, out, Accumulate::kNo};
    const Operands x = Operands::random(s);
    const TestTensor bias = std::move(TestTensor(out, {s.n}).randomize("bias"));
    const TestTensor nothing = std::move(TestTensor(out, {s.m, s.n}).fill(7));
    std::vector<double> sums = x.reference(s);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += bias.at(static_cast<std::int64_t>(i) % s.n);
    const EpilogueResult plain = run_epilogue(f, s, Epilogue::kBias, x, bias, nothing);
    expect_near(plain.out, sums, "out");
    EXPECT_TRUE(plain.bias.same_bits(bias));
    EXPECT_TRUE(plain.aux.same_bits(nothing));
    std::vector<double> activated;
    for (const double v : sums) activated.push_back(gelu(v));
    const EpilogueResult result = run_epilogue(f, s, Epilogue::kBiasGelu, x, bias, nothing);
    expect_near(result.out, activated, "gelu");
    expect_near(result.aux, sums, "aux");
  }
}

TEST(CublasLtMatmul, TheGradientOfGeluIsFused) {
  for (const DType out : {kH, kW}) {
    MatmulFixture f;
    const MatmulShape s{12, 16, 24, kN, kN, kH, out, Accumulate::kNo};
    const Operands x = Operands::random(s);
    const TestTensor aux = std::move(TestTensor(out, {s.m, s.n}).randomize("aux", 2.0)), none(out, {s.n});
    std::vector<double> expected = x.reference(s);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= gelu_slope(aux.at(static_cast<std::int64_t>(i)));
    const EpilogueResult result = run_epilogue(f, s, Epilogue::kGeluBackward, x, none, aux);
    expect_near(result.out, expected, "out");
    EXPECT_TRUE(result.aux.same_bits(aux));
  }
}

TEST(CublasLtMatmul, TheBiasGradientStandsBesideTheWeightGradient) {
  MatmulFixture f;
  const MatmulShape s{16, 24, 40, kT, kN, kH, kW, Accumulate::kYes};
  const Operands x = Operands::random(s);
  const TestTensor stale = std::move(TestTensor(kW, {s.m}).fill(1000)), none(kW, {s.m, s.n});
  std::vector<double> sums(static_cast<std::size_t>(s.m));  // of a, stored [k, m], over k
  for (std::int64_t i = 0; i < s.k * s.m; ++i) sums[static_cast<std::size_t>(i % s.m)] += x.a.at(i);
  const EpilogueResult result = run_epilogue(f, s, Epilogue::kBiasGradient, x, stale, none);
  expect_near(result.out, x.reference(s), "weight gradient");
  expect_near(result.bias, sums, "bias gradient");
}

// Nothing is refused then: the caller does the two one by one.
TEST(CublasLtMatmul, WhatCannotBeFused) {
  MatmulFixture f;
  EXPECT_EQ(f.matmul.prepare_fused({4, 12, 16, kN, kT, kH, kH, Accumulate::kNo}, Epilogue::kBiasGelu), std::nullopt)
      << "rows of 12 elements";
  EXPECT_EQ(f.matmul.prepare_fused({4, 16, 0, kN, kT, kH, kH, Accumulate::kNo}, Epilogue::kBias), std::nullopt)
      << "nothing to multiply";
  const MatmulShape s{4, 16, 16, kN, kT, kH, kH, Accumulate::kNo};
  simulated::fail_next("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(f.matmul.prepare_fused(s, Epilogue::kBias), std::nullopt) << "no algorithm";
  const DeviceTensor a(TestTensor(kH, {4, 16})), b(TestTensor(kH, {16, 16})), out(TestTensor(kH, {4, 16})),
      bias(TestTensor(kH, {16}));
  FusedMatmul fused;
  fused.epilogue = Epilogue::kBias;
  fused.product = {out.view(), a.view(), kN, b.view(), kT, Accumulate::kNo, {}};
  fused.bias = bias.view();
  EXPECT_FALSE(f.matmul.can_fuse(fused));
  const std::int64_t asked = simulated::cublaslt_counts().heuristics;
  EXPECT_EQ(f.matmul.prepare_fused(s, Epilogue::kBias), std::nullopt);
  EXPECT_EQ(simulated::cublaslt_counts().heuristics, asked) << "it is asked once";
  fused.epilogue = Epilogue::kGeluBackward;
  EXPECT_FALSE(f.matmul.can_fuse(fused)) << "was not prepared";
}

// Products by cuBLASLt that are asked for wrongly, or that the library or the machine cannot do.

TEST(CublasLtFailures, MistakesAreNamed) {
  MatmulFixture f;
  const DeviceTensor a(TestTensor(kW, {4, 8})), b(TestTensor(kW, {8, 3})), out(TestTensor(kW, {4, 3})),
      half(TestTensor(kH, {8, 3}));
  const TestTensor on_host(kW, {4, 8});
  const auto message = [&](TensorView o, ConstTensorView x, Transpose tx, ConstTensorView y, Transpose ty) {
    return error_of<InternalError>([&] { f.matmul.run(f.stream.get(), {o, x, tx, y, ty, Accumulate::kNo, TensorView()}); });
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
  const DeviceTensor workspace(TestTensor(DType::kU8, {needed + 256}));
  const auto message = [&](TensorView w) {
    return error_of<InternalError>(
        [&] { f.matmul.run(f.stream.get(), {out.view(), a.view(), kN, b.view(), kN, Accumulate::kNo, w}); });
  };
  EXPECT_TRUE(contains(message(workspace.view().range(0, needed - 1)), "a workspace of 8191 bytes, 8192 needed"));
  EXPECT_TRUE(contains(message(workspace.view().range(16, needed)), "must lie at a multiple of 256 bytes"));
  EXPECT_EQ(message(workspace.view().range(256, needed)), "no error");
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

TEST(CublasLtFailures, AMissingDriverIsNamed) {
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
