// Matrix products by cuBLASLt against a scalar reference: every layout, type and epilogue; plans; determinism; mistakes and
// failures.
#include "device/cuda/cublaslt_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <thread>
#include <vector>

#include "device/cuda/cublaslt_handle.h"
#include "device/no_allocation.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cublaslt.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/support/error_text.h"
#include "tests/support/reference_attention.h"

namespace trident {
namespace {

constexpr Transpose kN = Transpose::kNo, kT = Transpose::kYes;
constexpr DType kH = DType::kBF16, kW = DType::kF32;

struct Fixture {
  explicit Fixture(const CublasLtOptions& options = {}, int device = 0) : handle(device), matmul(handle, options) {}
  CublasLtHandle handle;
  CublasLtMatmul matmul;
  TestStream stream;
};

Shape stored(std::int64_t rows, std::int64_t columns, Transpose t) { return t == kT ? Shape{columns, rows} : Shape{rows, columns}; }

struct Operands {
  TestTensor a, b, old;

  static Operands integers(const MatmulShape& s) {
    return {std::move(TestTensor(s.in, stored(s.m, s.k, s.transpose_a)).integers("a")),
            std::move(TestTensor(s.in, stored(s.k, s.n, s.transpose_b)).integers("b")),
            std::move(TestTensor(s.out, {s.m, s.n}).integers("old"))};
  }
  static Operands random(const MatmulShape& s) {
    return {std::move(TestTensor(s.in, stored(s.m, s.k, s.transpose_a)).randomize("a")),
            std::move(TestTensor(s.in, stored(s.k, s.n, s.transpose_b)).randomize("b")),
            std::move(TestTensor(s.out, {s.m, s.n}).randomize("old"))};
  }
  // In double, not rounded.
  std::vector<double> reference(const MatmulShape& s) const {
    std::vector<double> out = old.values();
    reference::matmul(out.data(), a.values().data(), s.transpose_a == kT, b.values().data(), s.transpose_b == kT, s.m, s.n, s.k,
                      s.accumulate == Accumulate::kYes);
    return out;
  }
};

// Elements by which operands are shifted.
struct Shifts {
  std::int64_t out = 0, a = 0, b = 0;
};

TestTensor run(Fixture& f, const MatmulShape& s, const Operands& x, Shifts shifts = {}) {
  TestTensor start(s.out, {s.m, s.n});
  for (std::int64_t i = 0; i < s.m * s.n; ++i) start.set(i, s.accumulate == Accumulate::kYes ? x.old.at(i) : kNaN);
  const int device = f.handle.device();
  const DeviceTensor out(start, shifts.out, device), a(x.a, shifts.a, device), b(x.b, shifts.b, device);
  const std::int64_t bytes = f.matmul.prepare(s);
  const DeviceTensor workspace(TestTensor(DType::kU8, {bytes}), 0, device);
  {
    const NoAllocationScope step("matmul");
    f.matmul.run(f.stream.get(), out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b, s.accumulate, workspace.view());
  }
  f.stream.synchronize();
  EXPECT_TRUE(out.guards_intact()) << describe(s);
  EXPECT_TRUE(workspace.guards_intact()) << describe(s);
  return out.download();
}

// Integer operands: every order of summation gives the same, exact result, rounded once.
void check_exact(Fixture& f, const MatmulShape& s, Shifts shifts = {}) {
  const Operands x = Operands::integers(s);
  const std::vector<double> expected = x.reference(s);
  const TestTensor out = run(f, s, x, shifts);
  for (std::int64_t i = 0; i < s.m * s.n; ++i) {
    const double exact = expected[static_cast<std::size_t>(i)];
    ASSERT_EQ(out.at(i), s.out == kH ? to_float(to_bf16(static_cast<float>(exact))) : exact) << describe(s) << " element " << i;
  }
}

void check_layouts(Fixture& f, std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const auto& [in, out] : {std::pair(kW, kW), {kH, kW}, {kH, kH}})
    for (const Transpose ta : {kN, kT})
      for (const Transpose tb : {kN, kT})
        for (const Accumulate add : {Accumulate::kNo, Accumulate::kYes}) check_exact(f, {m, n, k, ta, tb, in, out, add});
}

TEST(CublasLtMatmul, EveryLayoutAndTypeIsExactOnIntegers) {
  for (const Determinism determinism : {Determinism::kRequired, Determinism::kNotRequired}) {
    Fixture f({.determinism = determinism});
    check_layouts(f, 1, 1, 1);
    check_layouts(f, 1, 17, 5);
    check_layouts(f, 7, 1, 33);
    check_layouts(f, 3, 5, 1);
    check_layouts(f, 16, 16, 16);
    check_layouts(f, 33, 65, 129);
    check_layouts(f, 64, 48, 64);
    check_layouts(f, 2, 300, 7);
  }
}

TEST(CublasLtMatmul, LongWeightGradients) {
  Fixture f;
  for (const Accumulate add : {Accumulate::kNo, Accumulate::kYes})
    for (const std::int64_t tokens : {511, 512, 700}) check_exact(f, {40, 24, tokens, kT, kN, kH, kW, add});
}

TEST(CublasLtMatmul, EmptyExtentsNeedNoLibrary) {
  Fixture f;
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
  Fixture f;
  const MatmulShape s{6, 16, 8, kN, kT, kW, kW, Accumulate::kNo};
  const Operands x = Operands::integers(s);
  const DeviceTensor a(x.a), b(x.b), out(x.old), workspace(TestTensor(DType::kU8, {f.matmul.prepare(s)}));
  f.matmul.run(f.stream.get(), out.view().reshape({3, 2, 16}), a.view().reshape({2, 3, 8}), kN, b.view(), kT, Accumulate::kNo,
               workspace.view());
  f.stream.synchronize();
  EXPECT_EQ(out.download().values(), x.reference(s));
}

TEST(CublasLtMatmul, OperandsMayLieAnywhere) {
  Fixture f;
  for (const DType in : {kW, kH}) {
    const MatmulShape s{16, 24, 32, kN, kT, in, in, Accumulate::kYes};
    for (const Shifts shifts : {Shifts{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {3, 5, 7}, {4, 8, 16}}) check_exact(f, s, shifts);
  }
}

TEST(CublasLtMatmul, RandomOperandsAreWithinF32Rounding) {
  Fixture f;
  for (const DType in : {kW, kH}) {
    const MatmulShape s{48, 80, 200, kN, kT, in, kW, Accumulate::kNo};
    const Operands x = Operands::random(s);
    const std::vector<double> expected = x.reference(s);
    std::vector<double> magnitude(expected.size()), abs_a = x.a.values(), abs_b = x.b.values();
    for (double& v : abs_a) v = std::abs(v);
    for (double& v : abs_b) v = std::abs(v);
    reference::matmul(magnitude.data(), abs_a.data(), false, abs_b.data(), true, s.m, s.n, s.k, false);
    const TestTensor out = run(f, s, x);
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(out.at(static_cast<std::int64_t>(i)), expected[i], 4e-7 * magnitude[i]) << describe(s);
  }
}

TEST(CublasLtMatmul, Bf16ResultIsTheF32ResultRoundedOnce) {
  Fixture f;
  MatmulShape s{64, 96, 256, kN, kT, kH, kW, Accumulate::kNo};
  const Operands x = Operands::random(s);
  const TestTensor wide = run(f, s, x);
  s.out = kH;
  const TestTensor narrow = run(f, s, x);
  for (std::int64_t i = 0; i < s.m * s.n; ++i) ASSERT_NEAR(narrow.at(i), wide.at(i), std::abs(wide.at(i)) * 0x1.02p-8 + 1e-5);
}

TEST(CublasLtMatmul, SameBitsWhateverRanBeforeAndOnEveryVectorBoundary) {
  for (const DType in : {kW, kH}) {
    Fixture f, fresh;
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
  const auto bits_repeat = [](Fixture& f, const MatmulShape& s) {
    const Operands x = Operands::random(s);
    const TestTensor first = run(f, s, x);
    bool same = true;
    for (int i = 0; i < 4; ++i) same = same && run(f, s, x).same_bits(first);
    return same;
  };
  Fixture strict;
  EXPECT_TRUE(bits_repeat(strict, wide));
  EXPECT_TRUE(bits_repeat(strict, narrow));
  Fixture free({.determinism = Determinism::kNotRequired});
  EXPECT_TRUE(bits_repeat(free, narrow));
  EXPECT_FALSE(bits_repeat(free, wide)) << "the simulated library must show what the filter is for";
}

TEST(CublasLtMatmul, Tf32RoundsF32OperandsAndNoOthers) {
  Fixture f({.f32_products = F32Products::kTf32}), exact;
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
  Fixture f;
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
  f.matmul.prepare(s, Epilogue::kBias);
  EXPECT_EQ(asked(), start + 8);
}

TEST(CublasLtMatmul, WorkspaceStaysWithinTheLimit) {
  const MatmulShape s{32, 32, 64, kN, kT, kW, kW, Accumulate::kNo};
  EXPECT_EQ(Fixture().matmul.prepare(s), 2 * 32 * 32 * 4) << "two f32 partial sums";
  EXPECT_EQ(Fixture({.workspace_limit = 2048}).matmul.prepare(s), 1024);
  Fixture none({.workspace_limit = 0});
  EXPECT_EQ(none.matmul.prepare(s), 0);
  check_exact(none, s);
}

TEST(CublasLtMatmul, RanksAsThreadsOnTheirOwnDevices) {
  simulated::configure({.devices = 2});
  const auto rank = [](int device) {
    Fixture f({}, device);
    check_exact(f, {33, 65, 129, kN, kT, kH, kH, Accumulate::kNo});
    check_exact(f, {40, 24, 64, kT, kN, kH, kW, Accumulate::kYes});
  };
  std::vector<std::thread> ranks;
  for (const int device : {0, 1, 1}) ranks.emplace_back(rank, device);
  for (std::thread& r : ranks) r.join();
  simulated::reset();
  EXPECT_EQ(simulated::cublaslt_counts().handles, 0) << "every handle has an owner";
}

// ---- epilogues

double gelu(double x) { return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

struct EpilogueResult {
  TestTensor out, bias, aux;
};

EpilogueResult run_epilogue(Fixture& f, const MatmulShape& s, Epilogue epilogue, const Operands& x, const TestTensor& bias,
                            const TestTensor& aux) {
  const DeviceTensor a(x.a), b(x.b), out(x.old), d_bias(bias), d_aux(aux);
  const DeviceTensor workspace(TestTensor(DType::kU8, {f.matmul.prepare(s, epilogue)}));
  {
    const NoAllocationScope step("matmul");
    f.matmul.run(f.stream.get(), out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b, s.accumulate, workspace.view(),
                 {epilogue, d_bias.view(), d_aux.view()});
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

TEST(CublasLtMatmul, ForwardEpilogues) {
  for (const DType out : {kW, kH}) {
    Fixture f;
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
    const EpilogueResult result = run_epilogue(f, s, Epilogue::kGeluAuxBias, x, bias, nothing);
    expect_near(result.out, activated, "gelu");
    expect_near(result.aux, sums, "aux");
  }
}

TEST(CublasLtMatmul, GeluGradientWithBiasGradient) {
  Fixture f;
  const MatmulShape s{12, 16, 24, kN, kN, kH, kH, Accumulate::kNo};
  const Operands x = Operands::random(s);
  const TestTensor aux = std::move(TestTensor(kH, {s.m, s.n}).randomize("aux", 2.0));
  const TestTensor stale = std::move(TestTensor(kH, {s.n}).fill(1000));
  std::vector<double> expected = x.reference(s), columns(static_cast<std::size_t>(s.n));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] *= gelu_slope(aux.at(static_cast<std::int64_t>(i)));
    columns[i % static_cast<std::size_t>(s.n)] += expected[i];
  }
  const EpilogueResult result = run_epilogue(f, s, Epilogue::kDGeluBgrad, x, stale, aux);
  expect_near(result.out, expected, "out");
  expect_near(result.bias, columns, "bias gradient");
  EXPECT_TRUE(result.aux.same_bits(aux));
}

TEST(CublasLtMatmul, BiasGradientBesideTheWeightGradient) {
  Fixture f;
  const MatmulShape s{16, 24, 40, kT, kN, kH, kW, Accumulate::kYes};
  const Operands x = Operands::random(s);
  const TestTensor stale = std::move(TestTensor(kW, {s.m}).fill(1000)), none(kW, {s.m, s.n});
  std::vector<double> sums(static_cast<std::size_t>(s.m));  // of a, stored [k, m], over k
  for (std::int64_t i = 0; i < s.k * s.m; ++i) sums[static_cast<std::size_t>(i % s.m)] += x.a.at(i);
  const EpilogueResult result = run_epilogue(f, s, Epilogue::kBgrad, x, stale, none);
  expect_near(result.out, x.reference(s), "weight gradient");
  expect_near(result.bias, sums, "bias gradient");
}

// ---- mistakes and failures

TEST(CublasLtMatmul, MistakesAreNamed) {
  Fixture f;
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

TEST(CublasLtMatmul, WorkspaceMistakesAreNamed) {
  Fixture f;
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

TEST(CublasLtMatmul, EpilogueMistakesAreNamed) {
  Fixture f;
  const MatmulShape s{4, 8, 16, kN, kN, kW, kW, Accumulate::kNo};
  f.matmul.prepare(s, Epilogue::kGeluAuxBias);
  const DeviceTensor a(TestTensor(kW, {4, 16})), b(TestTensor(kW, {16, 8})), out(TestTensor(kW, {4, 8})), bias(TestTensor(kW, {8}));
  const DeviceTensor workspace(TestTensor(DType::kU8, {f.matmul.prepare(s, Epilogue::kGeluAuxBias)}));
  const auto message = [&](const EpilogueOperands& epilogue) {
    return error_of<InternalError>(
        [&] { f.matmul.run(f.stream.get(), out.view(), a.view(), kN, b.view(), kN, Accumulate::kNo, workspace.view(), epilogue); });
  };
  EXPECT_TRUE(contains(message({Epilogue::kGeluAuxBias, a.view(), out.view()}), "bias is f32 [4, 16], expected 8 elements"));
  EXPECT_TRUE(contains(message({Epilogue::kGeluAuxBias, bias.view(), bias.view()}), "aux is f32 [8], expected 32 elements"));
  EXPECT_TRUE(contains(message({Epilogue::kBias, bias.view(), {}}), "matmul 4x8x16 nn f32->f32 with bias was not prepared"));
}

TEST(CublasLtMatmul, NoDriver) {
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
TEST(CublasLtMatmul, FailuresWhilePlanningNameTheProduct) {
  const MatmulShape s{4, 8, 16, kN, kN, kW, kW, Accumulate::kNo};
  for (const char* function :
       {"cublasLtMatmulDescInit", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutInit", "cublasLtMatmulPreferenceInit",
        "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic"}) {
    Fixture f;
    simulated::fail_next(function, CUBLAS_STATUS_INTERNAL_ERROR);
    const std::string message = error_of<InternalError>([&] { f.matmul.prepare(s); });
    EXPECT_TRUE(contains(message, std::string(function) + " for matmul 4x8x16 nn f32->f32: CUBLAS_STATUS_INTERNAL_ERROR"))
        << message;
    check_exact(f, s);  // nothing half made is kept
  }
}

TEST(CublasLtMatmul, FailuresAreTheMachinesOrOurs) {
  const MatmulShape s{4, 8, 16, kN, kN, kW, kW, Accumulate::kNo};
  Fixture f;
  f.matmul.prepare(s);
  const auto message = [&](cublasStatus_t status, auto error) {
    simulated::fail_next("cublasLtMatmul", status);
    return error_of<decltype(error)>([&] { run(f, s, Operands::integers(s)); });
  };
  const ConfigError machine("");
  const InternalError ours("");
  EXPECT_TRUE(contains(message(CUBLAS_STATUS_ALLOC_FAILED, machine), "device memory is used up"));
  EXPECT_TRUE(contains(message(CUBLAS_STATUS_ARCH_MISMATCH, machine), "this card and this version of cuBLASLt do not have it"));
  EXPECT_TRUE(contains(message(CUBLAS_STATUS_NOT_SUPPORTED, machine), "CUBLAS_STATUS_NOT_SUPPORTED"));
  EXPECT_TRUE(contains(message(CUBLAS_STATUS_EXECUTION_FAILED, ours), "CUDA_LAUNCH_BLOCKING=1"));
  const std::string wrong = message(CUBLAS_STATUS_INVALID_VALUE, ours);
  EXPECT_TRUE(contains(wrong, "cublasLtMatmul for matmul 4x8x16 nn f32->f32: CUBLAS_STATUS_INVALID_VALUE (")) << wrong;
  check_exact(f, s);
}

TEST(CublasLtMatmul, AProductTheLibraryDoesNotHave) {
  const MatmulShape s{4, 8, 16, kN, kN, kW, kW, Accumulate::kNo};
  Fixture f;
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
TEST(CublasLtMatmul, ProposalsThatCannotBeJudgedAreNotTaken) {
  const MatmulShape s{4, 8, 64, kN, kN, kW, kW, Accumulate::kNo};
  Fixture f;
  simulated::fail_next("cublasLtMatmulAlgoConfigGetAttribute", CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(f.matmul.prepare(s), 1024) << "the second proposal";
  check_exact(f, s);
}

}  // namespace
}  // namespace trident
