// Matrix products by tiles and by every entry point against a scalar reference; determinism; misuse. Layouts, types, levels and
// empty extents of the device's products are cases of tests/conformance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "device/cpu/blocked_product.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"
#include "device/no_allocation.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/device/isa_levels.h"
#include "tests/device/operands.h"
#include "tests/support/reference_attention.h"

namespace trident {
namespace {

struct Fixture {
  explicit Fixture(std::optional<IsaLevel> level = std::nullopt) : device(bell, {1, std::nullopt, level}) {}
  Doorbell bell;
  CpuDevice device;
};

std::string name_of(const MatmulShape& s) {
  return fmt::format("{}x{}x{} {}{} {}->{} {}", s.m, s.n, s.k, s.transpose_a == Transpose::kYes ? "t" : "n",
                     s.transpose_b == Transpose::kYes ? "t" : "n", to_string(s.in), to_string(s.out),
                     s.accumulate == Accumulate::kYes ? "add" : "set");
}

Shape stored(std::int64_t rows, std::int64_t columns, Transpose t) {
  return t == Transpose::kYes ? Shape{columns, rows} : Shape{rows, columns};
}

TestTensor run(CpuDevice& device, const MatmulShape& s, const TestTensor& a, const TestTensor& b, const TestTensor& old,
               std::int64_t misalign = 0) {
  TestTensor out(s.out, {s.m, s.n}, misalign);
  for (std::int64_t i = 0; i < s.m * s.n; ++i) out.set(i, s.accumulate == Accumulate::kYes ? old.at(i) : kNaN);
  const std::int64_t bytes = device.ops().prepare_matmul(s);
  TestTensor workspace(DType::kU8, {bytes});
  {
    const NoAllocationScope step("matmul");
    device.ops().run(device.compute_stream(), op::Matmul{{out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b,
                                                          s.accumulate, workspace.view(), s.scale}});
  }
  EXPECT_TRUE(workspace.guards_intact()) << name_of(s);
  EXPECT_TRUE(out.guards_intact()) << name_of(s);
  return out;
}

using Types = std::pair<DType, DType>;  // of operands and result
constexpr Types kAllTypes[] = {{DType::kF32, DType::kF32},
                               {DType::kBF16, DType::kF32},
                               {DType::kBF16, DType::kBF16},
                               {DType::kF16, DType::kF32},
                               {DType::kF16, DType::kF16}};

// By tiles alone, whichever entry point the table gives such a shape.
struct Tiles {
  explicit Tiles(IsaLevel level, bool pairs = false)
      : tiles(product_tiles(level, pairs)), name(fmt::format("{}{}", to_string(level), pairs ? ", pairs" : "")) {}
  ProductTiles tiles;
  std::string name;
};
TestTensor run(const Tiles& tiles, const MatmulShape& s, const TestTensor& a, const TestTensor& b, const TestTensor& old) {
  TestTensor out(s.out, {s.m, s.n});
  for (std::int64_t i = 0; i < s.m * s.n; ++i) out.set(i, s.accumulate == Accumulate::kYes ? old.at(i) : kNaN);
  TestTensor workspace(DType::kF32, {blocked_workspace_floats(tiles.tiles, s)});
  workspace.fill(kNaN);
  multiply_blocked(tiles.tiles, s, out.view().data(), a.view().data(), b.view().data(), workspace.view().as<float>());
  EXPECT_TRUE(workspace.guards_intact()) << tiles.name << " " << name_of(s);
  EXPECT_TRUE(out.guards_intact()) << tiles.name << " " << name_of(s);
  return out;
}

// f(tiles, the types that they multiply) for every instruction set of this processor.
template <class F>
void for_each_tiles(F f) {
  static constexpr Types kPairs[] = {{DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}};
  for (const IsaLevel level : isa_levels()) f(Tiles(level), std::span<const Types>(kAllTypes));
  if (detect_cpu_features().avx512_bf16) f(Tiles(IsaLevel::kAvx512, true), std::span<const Types>(kPairs));
}

struct IntegerOperands {
  TestTensor a, b, old;
  explicit IntegerOperands(const MatmulShape& s)
      : a(s.in, stored(s.m, s.k, s.transpose_a)), b(s.in, stored(s.k, s.n, s.transpose_b)), old(s.out, {s.m, s.n}) {
    a.integers("a"), b.integers("b"), old.integers("old");
  }
};

// Integer operands: every order of summation gives the same, exact result, so equality is asked for (rounded once to 16 bits).
// That of f32 operands may take the place of the loops, which are slow.
template <class Multiplier>
void check_exact(Multiplier& device, const MatmulShape& s, std::vector<double> expected = {}) {
  const IntegerOperands x(s);
  if (expected.empty()) {
    expected = x.old.values();
    reference::matmul(expected.data(), x.a.values().data(), s.transpose_a == Transpose::kYes, x.b.values().data(),
                      s.transpose_b == Transpose::kYes, s.m, s.n, s.k, s.accumulate == Accumulate::kYes);
  }
  const TestTensor out = run(device, s, x.a, x.b, x.old);
  TestTensor want(s.out, {1});
  for (std::int64_t i = 0; i < s.m * s.n; ++i) {
    want.set(0, expected[static_cast<std::size_t>(i)]);
    ASSERT_EQ(out.at(i), want.at(0)) << name_of(s) << " element " << i;
  }
}

struct Extents {
  std::int64_t m, n, k;
};

template <class Multiplier>
void check_layouts(Multiplier& device, Extents e, std::span<const Types> types = kAllTypes) {
  for (const auto& [in, out] : types)
    for (const Transpose ta : {Transpose::kNo, Transpose::kYes})
      for (const Transpose tb : {Transpose::kNo, Transpose::kYes})
        for (const Accumulate add : {Accumulate::kNo, Accumulate::kYes}) check_exact(device, {e.m, e.n, e.k, ta, tb, in, out, add});
}

// In fp32 those are several calls, the last of fewer columns.
TEST(Matmul, ManyColumnsAreExact) {
  Fixture f;
  check_layouts(f.device, {5, 1567, 9});
}

// Every part of a tile, tasks of several tiles, and sums that are cut once or more, in the result or beside it.
TEST(Tiles, EveryLayoutAndTypeIsExactOnIntegers) {
  for_each_tiles([](const Tiles& tiles, std::span<const Types> types) {
    SCOPED_TRACE(tiles.name);
    for (const Extents e :
         {Extents{1, 1, 1}, {7, 17, 5}, {13, 31, 3}, {16, 32, 34}, {29, 35, 513}, {15, 33, 1030}, {5, 2, 2050}, {90, 261, 18}})
      check_layouts(tiles, e, types);
    // Rows whole pages apart.
    check_layouts(tiles, {17, 9, 2048}, types);
  });
}

// More than one block of rows, of columns, and of rows, columns and the sum of a result of 16 bits.
TEST(Tiles, BlocksFitTogether) {
  MatmulShape s{1050, 1060, 2051, Transpose::kNo, Transpose::kNo, DType::kF32, DType::kF32, Accumulate::kYes};
  const IntegerOperands x(s);
  Fixture f;
  const std::vector<double> exact = run(f.device, s, x.a, x.b, x.old).values();
  for_each_tiles([&](const Tiles& tiles, std::span<const Types> types) {
    SCOPED_TRACE(tiles.name);
    for (const Extents e : {Extents{2060, 3, 2}, {3, 2060, 2}}) check_layouts(tiles, e, types);
    for (const auto& [in, out] : types) {
      MatmulShape t = s;
      t.in = in, t.out = out;
      check_exact(tiles, t, exact);
    }
  });
}

TEST(Tiles, ScaleTheProductAndNotWhatItIsAddedTo) {
  for_each_tiles([](const Tiles& tiles, std::span<const Types> types) {
    SCOPED_TRACE(tiles.name);
    for (const auto& [in, out] : types) {
      for (const std::int64_t k : {40, 2100}) {
        MatmulShape s{17, 35, k, Transpose::kNo, Transpose::kYes, in, out, Accumulate::kYes};
        const IntegerOperands x(s);
        std::vector<double> product(17 * 35);
        reference::matmul(product.data(), x.a.values().data(), false, x.b.values().data(), true, s.m, s.n, k, false);
        s.scale = -0.5f;
        const TestTensor got = run(tiles, s, x.a, x.b, x.old);
        TestTensor want(out, {1});
        for (std::int64_t i = 0; i < s.m * s.n; ++i) {
          want.set(0, x.old.at(i) - 0.5 * product[static_cast<std::size_t>(i)]);
          ASSERT_EQ(got.at(i), want.at(0)) << name_of(s) << " element " << i;
        }
      }
    }
  });
}

// A part of the rows and of the columns, by any number of threads.
TEST(Tiles, ResultsDependOnTheirRowAndColumnAlone) {
  static constexpr std::int64_t kDepth = 2100;  // sums of pairs are cut, too
  for_each_tiles([](const Tiles& tiles, std::span<const Types> types) {
    SCOPED_TRACE(tiles.name);
    for (const auto& [in, out] : types) {
      const MatmulShape whole{300, 270, kDepth, Transpose::kNo, Transpose::kYes, in, out, Accumulate::kNo};
      const TestTensor a = std::move(TestTensor(in, {300, kDepth}).randomize("a"));
      const TestTensor b = std::move(TestTensor(in, {270, kDepth}).randomize("b"));
      const auto rows_of = [&](const TestTensor& x, std::int64_t first, std::int64_t rows) {
        TestTensor part(in, {rows, kDepth});
        for (std::int64_t i = 0; i < rows * kDepth; ++i) part.set(i, x.at(first * kDepth + i));
        return part;
      };
      const TestTensor all = run(tiles, whole, a, b, a);
      for (const int threads : {1, 2, 3, 4}) {
        std::thread([&] {  // a thread has the team that is made for it
          make_team(threads, std::nullopt);
          EXPECT_TRUE(run(tiles, whole, a, b, a).same_bits(all)) << name_of(whole) << ", " << threads << " threads";
        })
            .join();
      }
      MatmulShape part = whole;
      part.m = 23, part.n = 41;
      const TestTensor few = run(tiles, part, rows_of(a, 131, part.m), rows_of(b, 97, part.n), a);
      for (std::int64_t r = 0; r < part.m; ++r)
        for (std::int64_t c = 0; c < part.n; ++c)
          ASSERT_EQ(few.at(r * part.n + c), all.at((131 + r) * whole.n + 97 + c))
              << name_of(whole) << " row " << r << " column " << c;
    }
  });
}

TEST(Matmul, LongWeightGradientsAreExact) {
  Fixture f;
  for (const Accumulate add : {Accumulate::kNo, Accumulate::kYes})
    for (const std::int64_t tokens : {511, 512, 700})
      check_exact(f.device, {40, 24, tokens, Transpose::kYes, Transpose::kNo, DType::kBF16, DType::kF32, add});
}

TEST(Matmul, SameBitsWhateverRanBeforeAndWhereverThingsLie) {
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      Fixture f, fresh;
      const MatmulShape s{100, 72, 520, ta, Transpose::kNo, in, DType::kF32, Accumulate::kNo};
      const TestTensor a = std::move(TestTensor(in, stored(100, 520, ta)).randomize("a")),
                       b = std::move(TestTensor(in, {520, 72}).randomize("b"));
      const TestTensor a_shifted = std::move(TestTensor(in, stored(100, 520, ta), 3).randomize("a"));
      const TestTensor b_shifted = std::move(TestTensor(in, {520, 72}, 5).randomize("b"));
      const TestTensor first = run(f.device, s, a, b, a);
      check_exact(f.device, {9, 9, 9, Transpose::kNo, Transpose::kNo, in, DType::kF32, Accumulate::kNo});
      EXPECT_TRUE(run(f.device, s, a, b, a).same_bits(first));
      EXPECT_TRUE(run(fresh.device, s, a, b, a).same_bits(first));
      EXPECT_TRUE(run(f.device, s, a_shifted, b_shifted, a, 1).same_bits(first)) << name_of(s) << " depends on alignment";
    }
  }
}

// The residual stands where the result goes: a tile reads its own place before it writes there.
TEST(Matmul, SummandsAreAddedOnTheTile) {
  Fixture f;
  const MatmulShape s{24, 40, 1100, Transpose::kNo, Transpose::kYes, DType::kF32, DType::kF32, Accumulate::kNo};
  constexpr std::int64_t kRank = 16;
  const PreparedProduct prepared = f.device.ops().prepare_fused(s, Epilogue::kSummands, kRank);
  ASSERT_TRUE(prepared.fused);
  const auto integers = [](Shape shape, std::int64_t step) {
    TestTensor x(DType::kF32, shape);
    for (std::int64_t i = 0; i < shape.num_elements(); ++i) x.set(i, static_cast<double>(i * step % 7 - 3));
    return x;
  };
  const TestTensor a = integers({s.m, s.k}, 5), b = integers({s.n, s.k}, 3), inner = integers({s.m, kRank}, 2),
                   outer = integers({s.n, kRank}, 4), out = integers({s.m, s.n}, 6), residual = integers({s.m, s.n}, 6);
  TestTensor workspace(DType::kU8, {prepared.workspace});
  ASSERT_TRUE(f.device.ops().try_fused(f.device.compute_stream(), {.epilogue = Epilogue::kSummands,
                                                                   .product = {out.view(), a.view(), s.transpose_a, b.view(),
                                                                               s.transpose_b, s.accumulate, workspace.view()},
                                                                   .residual = out.view(), .inner = inner.view(),
                                                                   .outer = outer.view()}));
  for (std::int64_t i = 0; i < s.m * s.n; ++i) {
    double sum = residual.at(i);
    for (std::int64_t k = 0; k < s.k; ++k) sum += a.at(i / s.n * s.k + k) * b.at(i % s.n * s.k + k);
    for (std::int64_t r = 0; r < kRank; ++r) sum += inner.at(i / s.n * kRank + r) * outer.at(i % s.n * kRank + r);
    ASSERT_EQ(out.at(i), sum) << i;
  }
  EXPECT_TRUE(workspace.guards_intact());
  EXPECT_THROW(f.device.ops().try_fused(f.device.compute_stream(), {.epilogue = Epilogue::kSummands,
                                                                    .product = {out.view(), a.view(), s.transpose_a, b.view(),
                                                                                s.transpose_b, Accumulate::kYes, workspace.view()},
                                                                    .residual = residual.view()}),
               InternalError)
      << "what out holds and the residual cannot both be added";
  MatmulShape widened = s;
  widened.in = widened.out = DType::kF16;
  EXPECT_TRUE(f.device.ops().prepare_fused(widened, Epilogue::kSummands, 0).fused);
  EXPECT_FALSE(f.device.ops().prepare_fused(widened, Epilogue::kSummands, kRank).fused) << "rows of inner are read where they lie";
}

TEST(Matmul, TwoThreadsComputeTheSame) {
  std::thread([] {  // the team size is set for the thread that makes the device
    Doorbell bell;
    CpuDevice device(bell, {2, std::nullopt, std::nullopt});
    for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
      check_exact(device, {130, 200, 96, Transpose::kNo, Transpose::kYes, in, in, Accumulate::kNo});
      check_exact(device, {130, 200, 600, Transpose::kYes, Transpose::kNo, in, DType::kF32, Accumulate::kYes});
      check_exact(device, {1030, 64, 96, Transpose::kNo, Transpose::kYes, in, in, Accumulate::kYes});
    }
  })
      .join();
}

TEST(Matmul, UsesTheKernelMadeForTheShape) {
  OnednnMatmul matmul(Bf16Products::kNative, row_kernels(detect_cpu_features().level));
  const auto entry = [&](const MatmulShape& s) {
    matmul.prepare(s);
    return matmul.entry_point(s);
  };
  const DType h = DType::kBF16, w = DType::kF32;
  const Transpose n = Transpose::kNo, t = Transpose::kYes;
  OnednnMatmul converted(Bf16Products::kConverted, row_kernels(IsaLevel::kBaseline));
  EXPECT_GT(converted.prepare({256, 768, 768, n, t, h, h, Accumulate::kNo}), 0);
  EXPECT_EQ(converted.entry_point({256, 768, 768, n, t, h, h, Accumulate::kNo}), "blocked");
  EXPECT_EQ(entry({256, 768, 768, n, t, w, w, Accumulate::kNo}), "dnnl_sgemm");
  EXPECT_EQ(entry({256, 0, 768, n, t, w, w, Accumulate::kNo}), "nothing");
  EXPECT_EQ(entry({256, 768, 768, n, t, DType::kF16, w, Accumulate::kNo}), "blocked");
  const auto adds = [&](DType dtype, std::int64_t k, std::int64_t rank) {
    return matmul.workspace_with_summands({256, 768, k, n, t, dtype, dtype, Accumulate::kNo}, rank).has_value();
  };
  EXPECT_FALSE(adds(w, 256, 0)) << "an addition of its own is faster";
  EXPECT_TRUE(adds(w, 512, 0) && adds(w, 4096, 0) && adds(w, 256, 16));
  if (!onednn_has_native_bf16()) GTEST_SKIP() << "this processor has no bf16 instructions";
  // Forward y = x W^T, input gradient dx = dy W, weight gradient dW += dy^T x. oneDNN 2.6 says "brg:", 3.7 "brg_matmul:".
  const auto batch_reduced = ::testing::MatchesRegex("brg(_matmul)?:avx512_core.*");
  EXPECT_THAT(entry({256, 768, 768, n, t, h, h, Accumulate::kNo}), batch_reduced);
  EXPECT_THAT(entry({256, 768, 768, n, n, h, h, Accumulate::kNo}), batch_reduced);
  EXPECT_THAT(entry({768, 768, 256, t, n, h, w, Accumulate::kYes}), batch_reduced);
  EXPECT_EQ(entry({768, 768, 1024, t, n, h, w, Accumulate::kYes}), "gemm_bf16bf16f32");
  if (onednn_has_native_amx()) GTEST_SKIP() << "AMX multiplies bf16 here";
  EXPECT_EQ(entry({256, 512, 50304, n, n, h, h, Accumulate::kNo}), "blocked");
  EXPECT_EQ(entry({512, 768, 2048, n, n, h, h, Accumulate::kNo}), "blocked");
  EXPECT_THAT(entry({512, 768, 2816, n, n, h, h, Accumulate::kNo}), batch_reduced);
  EXPECT_TRUE(adds(h, 2048, 0) && adds(h, 2816, 16));
  EXPECT_FALSE(adds(h, 2816, 0)) << "sums wait in a buffer";
}

TEST(Matmul, MistakesAreNamed) {
  Fixture f;
  Ops& ops = f.device.ops();
  const TestTensor a(DType::kF32, {4, 8}), b(DType::kF32, {8, 3}), out(DType::kF32, {4, 3}), half(DType::kBF16, {8, 3}),
      none(DType::kU8, {0});
  const auto message = [&](TensorView o, TensorView x, Transpose tx, TensorView y, Transpose ty) -> std::string {
    try {
      ops.run(f.device.compute_stream(), op::Matmul{{o, x, tx, y, ty, Accumulate::kNo, none.view()}});
    } catch (const InternalError& e) {
      return e.what();
    }
    return "no error";
  };
  const Transpose n = Transpose::kNo, t = Transpose::kYes;
  EXPECT_NE(message(out.view(), a.view(), n, b.view(), n).find("matmul 4x3x8 nn f32->f32 was not prepared"), std::string::npos);
  EXPECT_NE(message(out.view(), a.view(), n, b.view(), t).find("do not fit together"), std::string::npos);
  EXPECT_NE(message(out.view(), a.view(), n, half.view(), n).find("b is bf16"), std::string::npos);
  EXPECT_NE(message(a.view(), a.view(), n, b.view(), n).find("expected [4, 3]"), std::string::npos);
  EXPECT_THROW(ops.prepare_matmul({4, 3, 8, n, n, DType::kF32, DType::kBF16, Accumulate::kNo}), InternalError);
  EXPECT_THROW(ops.prepare_matmul({4, 3, 8, n, n, DType::kF16, DType::kBF16, Accumulate::kNo}), InternalError);
  EXPECT_THROW(ops.prepare_matmul({-1, 3, 8, n, n, DType::kF32, DType::kF32, Accumulate::kNo}), InternalError);
  Fixture converted(IsaLevel::kBaseline);
  const MatmulShape s{8, 8, 8, n, n, DType::kBF16, DType::kF32, Accumulate::kNo};
  ASSERT_GT(converted.device.ops().prepare_matmul(s), 0);
  const TestTensor x(DType::kBF16, {8, 8}), y(DType::kF32, {8, 8});
  EXPECT_THROW(converted.device.ops().run(converted.device.compute_stream(),
                                          op::Matmul{{y.view(), x.view(), n, x.view(), n, Accumulate::kNo, none.view()}}),
               InternalError);
}

// A second thread sleeps until it is needed: of a product that is soon done it would only be woken.
TEST(Matmul, SmallProductsTakeOneThread) {
  const auto threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
  std::thread([] {}).join();  // a sanitizer starts one of its own with the first
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::int64_t at_first = threads();
  const auto threads_after = [&](const MatmulShape& s) {
    std::int64_t before = 0, after = 0;
    // A thread of its own, because OpenMP keeps a team for each thread that ever had one.
    std::thread([&] {
      Doorbell bell;
      CpuDevice device(bell, {3, std::nullopt, std::nullopt});
      const TestTensor a = std::move(TestTensor(s.in, stored(s.m, s.k, s.transpose_a)).integers("a"));
      const TestTensor b = std::move(TestTensor(s.in, stored(s.k, s.n, s.transpose_b)).integers("b"));
      // The team of the thread before this one ends behind it, in its own time.
      for (int wait = 0; threads() > at_first + 1 && wait < 10'000; ++wait)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      before = threads();
      run(device, s, a, b, TestTensor(s.out, {s.m, s.n}));
      after = threads();
    }).join();
    return after - before;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    // A tile of attention, and a product of a small model; then one four times as large.
    const MatmulShape tile{128, 128, 64, Transpose::kNo, Transpose::kYes, dtype, DType::kF32, Accumulate::kNo};
    const MatmulShape small{256, 128, 127, Transpose::kNo, Transpose::kYes, dtype, dtype, Accumulate::kNo};
    const MatmulShape large{512, 256, 128, Transpose::kNo, Transpose::kYes, dtype, dtype, Accumulate::kNo};
    EXPECT_EQ(threads_after(tile), 0) << name_of(tile);
    EXPECT_EQ(threads_after(small), 0) << name_of(small);
    EXPECT_EQ(threads_after(large), 2) << name_of(large);
  }
}

}  // namespace
}  // namespace trident
