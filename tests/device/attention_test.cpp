// Tiled attention, forward and backward, against plain loops in double: tiles, threads, intervals, independence of heads. Masks,
// offsets, groups and empty operands in every type on every level are cases of tests/conformance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device/cpu/cpu_attention.h"
#include "device/cpu/cpu_device.h"
#include "device/no_allocation.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/device/isa_levels.h"
#include "tests/device/operands.h"
#include "tests/support/attention_tensors.h"

namespace trident {
namespace {

using testing::Tensors;

void run(const AttentionShape& s, Tensors& t, std::optional<IsaLevel> level = std::nullopt) {
  Doorbell bell;
  CpuDevice device(bell, {1, std::nullopt, level});
  Ops& ops = device.ops();
  const TestTensor workspace(DType::kU8, {ops.attention_workspace(s)});
  {
    const NoAllocationScope step("attention");
    ops.run(device.compute_stream(), op::AttentionForward{s, t.out.view(), t.lse.view(), t.q.view(), t.k.view(), t.v.view(),
                                                          workspace.view(), t.first_key.view()});
    ops.run(device.compute_stream(), op::AttentionBackward{s, t.d_q.view(), t.d_k.view(), t.d_v.view(), t.d_out.view(),
                                                           t.out.view(), t.q.view(), t.k.view(), t.v.view(), t.lse.view(),
                                                           workspace.view(), t.first_key.view()});
  }
  EXPECT_TRUE(workspace.guards_intact());
  for (const TestTensor* x : {&t.out, &t.lse, &t.d_q, &t.d_k, &t.d_v}) EXPECT_TRUE(x->guards_intact());
}

void check(const AttentionShape& s) {
  SCOPED_TRACE(fmt::format("B{} N{} K{} Sq{} Sk{} D{} {}", s.batch, s.query_heads, s.kv_heads, s.query_length, s.key_length,
                           s.head_dim, to_string(s.dtype)));
  Tensors t(s);
  run(s, t);
  expect_attention(s, t);
}

AttentionShape shape(std::int64_t b, std::int64_t n, std::int64_t kv, std::int64_t sq, std::int64_t sk, std::int64_t d,
                     DType dtype = DType::kF32) {
  AttentionShape s;
  s.batch = b, s.query_heads = n, s.kv_heads = kv, s.query_length = sq, s.key_length = sk, s.head_dim = d, s.dtype = dtype;
  s.scale = 1.0f / std::sqrt(static_cast<float>(d));
  return s;
}

TEST(Attention, SeveralTilesWithShortLastOnes) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    check(shape(1, 2, 1, 300, 300, 16, dtype));
    check(shape(1, 1, 1, 256, 256, 64, dtype));
  }
}

TEST(Attention, OneQueryOneKeyAndOneDimensionAreEnough) {
  check(shape(1, 1, 1, 1, 1, 1));
  check(shape(3, 6, 3, 2, 2, 1, DType::kBF16));
}

TEST(Attention, LargeScoresDoNotOverflow) {
  AttentionShape s = shape(1, 1, 1, 140, 140, 8);
  s.scale = 60.0f;
  Tensors t(s);
  run(s, t);
  for (const TestTensor* x : {&t.out, &t.lse, &t.d_q, &t.d_k, &t.d_v})
    for (const double value : x->values()) ASSERT_TRUE(std::isfinite(value));
}

TEST(Attention, ANaNIsNotHidden) {
  const AttentionShape s = shape(1, 1, 1, 4, 4, 4);
  Tensors t(s);
  t.q.set(2 * 4 + 1, kNaN);
  run(s, t);
  EXPECT_TRUE(std::isfinite(t.out.at(0)));
  EXPECT_TRUE(std::isnan(t.out.at(2 * 4)));
  EXPECT_TRUE(std::isnan(t.d_q.at(2 * 4)));
}

// Tensor parallelism relies on it: a rank with fewer heads or samples computes the same bits for the ones it has.
TEST(Attention, AHeadDoesNotDependOnItsNeighbours) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const AttentionShape all = shape(2, 4, 2, 200, 200, 16, dtype), part = shape(1, 2, 1, 200, 200, 16, dtype);
    Tensors whole(all), one(part);
    run(all, whole);
    const std::int64_t group = 3;  // sample 1, second key/value head: query heads 2 and 3
    const std::int64_t q_at = group * 2 * 200 * 16, k_at = group * 200 * 16;
    const auto cut = [](TestTensor& to, const TestTensor& from, std::int64_t first) {
      for (std::int64_t i = 0; i < to.view().num_elements(); ++i) to.set(i, from.at(first + i));
    };
    cut(one.q, whole.q, q_at), cut(one.k, whole.k, k_at), cut(one.v, whole.v, k_at), cut(one.d_out, whole.d_out, q_at);
    run(part, one);
    const auto expect_equal = [](const TestTensor& a, const TestTensor& b, std::int64_t first) {
      for (std::int64_t i = 0; i < a.view().num_elements(); ++i) ASSERT_EQ(a.at(i), b.at(first + i));
    };
    expect_equal(one.out, whole.out, q_at);
    expect_equal(one.lse, whole.lse, group * 2 * 200);
    expect_equal(one.d_q, whole.d_q, q_at);
    expect_equal(one.d_k, whole.d_k, k_at);
    expect_equal(one.d_v, whole.d_v, k_at);
  }
}

TEST(Attention, EveryLengthAndWidthIsThatOfTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::int64_t length : {1, 5, 127, 129}) check(shape(1, 2, 1, length, length, 48, dtype));
    for (const std::int64_t width : {8, 40, 64, 80, 96, 128, 256}) check(shape(1, 1, 1, 133, 133, width, dtype));
    for (const std::int64_t width : {3, 7, 31, 33}) check(shape(1, 3, 1, 19, 19, width, dtype));
  }
  check(shape(1, 1, 1, 1000, 1000, 64));
}

// Both forms of operands, whatever this processor chooses, and every instruction set.
TEST(Attention, NumbersAreRightAndDoNotDependOnThreads) {
  for (const IsaLevel level : isa_levels()) {
    for (const bool pairs : {false, true}) {
      if (pairs && !(level == IsaLevel::kAvx512 && detect_cpu_features().avx512_bf16)) continue;
      const CpuAttention attention(level, pairs);
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        AttentionShape s = shape(1, 4, 2, 700, 700, 24, dtype);
        s.interval = 700;
        const auto run_on = [&](int threads) {
          Doorbell bell;
          const CpuDevice device(bell, {threads, std::nullopt, std::nullopt});  // gives this thread its team
          Tensors t(s, {{0, 130, 390}, 300});
          const TestTensor workspace(DType::kU8, {attention.workspace_bytes(s)});
          attention.run(op::AttentionForward{s, t.out.view(), t.lse.view(), t.q.view(), t.k.view(), t.v.view(), workspace.view(),
                                             t.first_key.view()});
          attention.run(op::AttentionBackward{s, t.d_q.view(), t.d_k.view(), t.d_v.view(), t.d_out.view(), t.out.view(), t.q.view(),
                                              t.k.view(), t.v.view(), t.lse.view(), workspace.view(), t.first_key.view()});
          EXPECT_TRUE(workspace.guards_intact());
          return t;
        };
        const Tensors one = run_on(1);
        expect_attention(s, one);
        for (const int threads : {2, 3, 7}) {
          const Tensors several = run_on(threads);
          for (TestTensor Tensors::*x : {&Tensors::out, &Tensors::lse, &Tensors::d_q, &Tensors::d_k, &Tensors::d_v})
            EXPECT_TRUE((several.*x).same_bits(one.*x)) << to_string(level) << " " << to_string(dtype) << ", " << threads;
        }
      }
    }
  }
}

// Copies heads T[B,n,S,D] to columns from `column` on of rows T[S,B,C], or back.
void copy_heads(const TestTensor& heads, TestTensor& rows, std::int64_t column) {
  const Shape h = heads.view().shape(), r = rows.view().shape();
  for (std::int64_t i = 0; i < h.num_elements(); ++i) {
    const std::int64_t d = i % h[3], s = i / h[3] % h[2], n = i / h[3] / h[2] % h[1], b = i / h[3] / h[2] / h[1];
    rows.set((s * r[1] + b) * r[2] + column + n * h[3] + d, heads.at(i));
  }
}

TEST(Attention, HeadsMayBeColumnsOfRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const AttentionShape s = shape(2, 4, 2, 150, 150, 24, dtype);
    Tensors t(s);
    run(s, t);
    const HeadColumns columns{.q = 1, .k = 1 + 4 * 24, .v = 1 + 6 * 24};
    const Shape fused{150, 2, 8 * 24 + 2}, merged{150, 2, 4 * 24};
    TestTensor qkv(dtype, fused), d_qkv(dtype, fused), expected(dtype, fused), out(dtype, merged), d_out(dtype, merged),
        expected_out(dtype, merged);
    const TestTensor lse(DType::kF32, {2, 4, 150});
    copy_heads(t.q, qkv, columns.q), copy_heads(t.k, qkv, columns.k), copy_heads(t.v, qkv, columns.v);
    copy_heads(t.d_out, d_out, 0), copy_heads(t.out, expected_out, 0);
    d_qkv.fill(7), expected.fill(7);  // columns that are not meant stay as they are
    copy_heads(t.d_q, expected, columns.q), copy_heads(t.d_k, expected, columns.k), copy_heads(t.d_v, expected, columns.v);
    Doorbell bell;
    CpuDevice device(bell, {});
    ASSERT_TRUE(device.ops().attends_by_rows());
    const TestTensor workspace(DType::kU8, {device.ops().attention_workspace(s)});
    device.ops().run(device.compute_stream(), op::AttentionForward{s, out.view(), lse.view(), qkv.view(), qkv.view(), qkv.view(),
                                                                   workspace.view(), {}, columns});
    device.ops().run(device.compute_stream(),
                     op::AttentionBackward{s, d_qkv.view(), d_qkv.view(), d_qkv.view(), d_out.view(), out.view(), qkv.view(),
                                           qkv.view(), qkv.view(), lse.view(), workspace.view(), {}, columns});
    EXPECT_TRUE(out.same_bits(expected_out) && lse.same_bits(t.lse) && d_qkv.same_bits(expected)) << to_string(dtype);
    for (const TestTensor* x : {&qkv, &d_qkv, &out}) EXPECT_TRUE(x->guards_intact());
    const auto refused = [&](const HeadColumns& beyond) {
      device.ops().run(device.compute_stream(), op::AttentionForward{s, out.view(), lse.view(), qkv.view(), qkv.view(), qkv.view(),
                                                                     workspace.view(), {}, beyond});
    };
    EXPECT_THROW(refused({.q = 1, .k = 1, .v = 7 * 24}), InternalError);
    EXPECT_THROW(refused({.q = -1, .k = 1, .v = 1}), InternalError);
  }
}

// Heads that are turned before and gradients that are turned back after have the same bits, whatever the threads: several cut
// queries and keys of one head apart.
TEST(Attention, RowsTurnWhileTheyAreRead) {
  struct Case {
    std::int64_t kv_heads, length, width, pairs;
  };
  for (const auto& [kv_heads, length, width, pairs] : {Case{2, 150, 24, 12}, Case{1, 700, 40, 10}}) {
    const Shape tables{length + 3, pairs};
    TestTensor cos(DType::kF32, tables), sin(DType::kF32, tables), position(DType::kI32, {2, length});
    cos.randomize("cos"), sin.randomize("sin");
    for (std::int64_t i = 0; i < 2 * length; ++i) position.set(i, static_cast<double>(i % length + i / length * 3));
    const op::Rotation rotation{cos.view(), sin.view(), position.view()};
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(fmt::format("{} {}", length, to_string(dtype)));
      const AttentionShape s = shape(2, 2 * kv_heads, kv_heads, length, length, width, dtype);
      const std::int64_t N = s.query_heads, K = s.kv_heads;
      const HeadColumns columns{.q = 0, .k = N * width, .v = (N + K) * width};
      const Shape fused{length, 2, (N + 2 * K) * width}, merged{length, 2, N * width};
      TestTensor qkv(dtype, fused), d_qkv(dtype, fused), expected(dtype, fused), out(dtype, merged), d_out(dtype, merged),
          expected_out(dtype, merged);
      const TestTensor lse(DType::kF32, {2, N, length});
      Tensors t(s);
      copy_heads(t.q, qkv, columns.q), copy_heads(t.k, qkv, columns.k), copy_heads(t.v, qkv, columns.v);
      const auto turn = [&](TestTensor& x, Transpose inverse) {
        Doorbell bell;
        CpuDevice device(bell, {});
        device.ops().run(device.compute_stream(), op::Rope{x.view(), rotation, inverse});
      };
      turn(t.q, Transpose::kNo), turn(t.k, Transpose::kNo);
      run(s, t);
      turn(t.d_q, Transpose::kYes), turn(t.d_k, Transpose::kYes);
      copy_heads(t.d_out, d_out, 0), copy_heads(t.out, expected_out, 0);
      copy_heads(t.d_q, expected, columns.q), copy_heads(t.d_k, expected, columns.k), copy_heads(t.d_v, expected, columns.v);
      for (const int threads : {1, 3}) {
        Doorbell bell;
        CpuDevice device(bell, {threads, std::nullopt, std::nullopt});
        const TestTensor workspace(DType::kU8, {device.ops().attention_workspace(s)});
        out.fill(kNaN), d_qkv.fill(kNaN);
        const NoAllocationScope step("attention");
        device.ops().run(device.compute_stream(),
                         op::AttentionForward{s, out.view(), lse.view(), qkv.view(), qkv.view(), qkv.view(), workspace.view(), {},
                                              columns, rotation});
        device.ops().run(device.compute_stream(),
                         op::AttentionBackward{s, d_qkv.view(), d_qkv.view(), d_qkv.view(), d_out.view(), out.view(), qkv.view(),
                                               qkv.view(), qkv.view(), lse.view(), workspace.view(), {}, columns, rotation});
        EXPECT_TRUE(out.same_bits(expected_out) && lse.same_bits(t.lse) && d_qkv.same_bits(expected)) << threads;
        EXPECT_TRUE(workspace.guards_intact());
      }
    }
  }
}

// ---- intervals of keys, bounded scores

// `intervals` without documents and window are one document.
void check_intervals(AttentionShape s, const reference::Intervals& intervals, std::optional<IsaLevel> level = std::nullopt) {
  SCOPED_TRACE(fmt::format("Sq{} Sk{} offsets {} {}, {} documents, window {}, softcap {}, {} {}", s.query_length, s.key_length,
                           s.query_offset, s.key_offset, intervals.starts.size(), intervals.window, s.softcap, to_string(s.dtype),
                           level ? to_string(*level) : "own level"));
  s.interval = std::max<std::int64_t>(s.key_length, 1);
  Tensors t(s, intervals);
  run(s, t, level);
  expect_attention(s, t, 1e-6);
}

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST(Attention, EveryTypeOnEveryLevelSeesDocumentsAndWindows) {
  for (const IsaLevel level : isa_levels()) {
    for (const DType dtype : kTypes) {
      // Documents of one key, and some that begin at the first and at the last one.
      check_intervals(shape(2, 4, 2, 37, 37, 20, dtype), {{0, 1, 2, 9, 33, 36}}, level);
      check_intervals(shape(2, 4, 2, 37, 37, 20, dtype), {{0, 20}, 5}, level);
    }
  }
}

TEST(Attention, DocumentsBeginAnywhereInATile) {
  std::vector<std::int64_t> sixteen, each;
  for (std::int64_t i = 0; i < 16; ++i) sixteen.push_back(24 * i);
  for (std::int64_t i = 0; i < 140; ++i) each.push_back(i);
  for (const DType dtype : kTypes) {
    check_intervals(shape(1, 2, 1, 384, 384, 8, dtype), {sixteen});
    check_intervals(shape(2, 2, 1, 300, 300, 16, dtype), {{0, 5, 127, 128, 129, 250, 256, 296}});
    check_intervals(shape(1, 1, 1, 140, 140, 8, dtype), {each});
  }
}

TEST(Attention, WindowsMayBeOfOneKeyUpToMoreThanThereAre) {
  for (const DType dtype : kTypes)
    for (const std::int64_t window : {1, 2, 127, 128, 129, 1000}) check_intervals(shape(1, 2, 1, 300, 300, 8, dtype), {{}, window});
  check_intervals(shape(1, 2, 2, 300, 300, 8), {{0, 100, 131}, 64});  // the later of the two is first
}

TEST(Attention, BoundedScoresAreThoseOfTheReference) {
  for (const IsaLevel level : isa_levels()) {
    for (const DType dtype : kTypes) {
      AttentionShape s = shape(1, 2, 1, 300, 300, 16, dtype);
      s.softcap = 50.0f;
      check_intervals(s, {{0, 130}, 140}, level);
    }
  }
}

TEST(Attention, IntervalsOfOneDocumentGiveTheCausalBits) {
  for (const DType dtype : kTypes) {
    AttentionShape s = shape(2, 2, 1, 300, 300, 16, dtype);
    Tensors causal(s);
    run(s, causal);
    s.interval = 300;
    Tensors document(s, {{0}});
    run(s, document);
    for (TestTensor Tensors::*x : {&Tensors::out, &Tensors::lse, &Tensors::d_q, &Tensors::d_k, &Tensors::d_v})
      EXPECT_TRUE((document.*x).same_bits(causal.*x));
  }
}

TEST(Attention, ARowDoesNotDependOnTheDocumentsOfOthers) {
  for (const DType dtype : kTypes) {
    AttentionShape s = shape(1, 2, 1, 420, 420, 16, dtype);
    s.interval = 420;
    const std::int64_t from = 200;  // the last document
    Tensors few(s, {{0, from}}), many(s, {{0, 3, 60, 128, 190, from}});
    run(s, few);
    run(s, many);
    const auto expect_rows = [&](const TestTensor& a, const TestTensor& b, std::int64_t heads, std::int64_t width) {
      for (std::int64_t head = 0; head < heads; ++head)
        for (std::int64_t at = (head * 420 + from) * width; at < (head + 1) * 420 * width; ++at) ASSERT_EQ(a.at(at), b.at(at));
    };
    expect_rows(few.out, many.out, 2, 16);
    expect_rows(few.lse, many.lse, 2, 1);
    expect_rows(few.d_q, many.d_q, 2, 16);
    expect_rows(few.d_k, many.d_k, 1, 16);
    expect_rows(few.d_v, many.d_v, 1, 16);
  }
}

// A product with a tile of NaN would be NaN even where every probability is 0.
TEST(Attention, TilesThatNobodySeesAreNotComputed) {
  AttentionShape s = shape(1, 1, 1, 384, 384, 8);
  s.interval = 128;
  Tensors t(s, {{0, 128, 256}});
  for (std::int64_t i = 128 * 8; i < 256 * 8; ++i) t.k.set(i, kNaN), t.v.set(i, kNaN), t.q.set(i, kNaN), t.d_out.set(i, kNaN);
  run(s, t);
  for (const TestTensor* x : {&t.out, &t.d_q, &t.d_k, &t.d_v})
    for (std::int64_t i = 0; i < 384 * 8; ++i) ASSERT_EQ(std::isnan(x->at(i)), i / 8 / 128 == 1) << i;
}

TEST(Attention, WorkspaceDoesNotGrowWithTheSquareOfTheLength) {
  Doorbell bell;
  CpuDevice device(bell, {});
  const std::int64_t one = device.ops().attention_workspace(shape(1, 1, 1, 4096, 4096, 64, DType::kBF16));
  const std::int64_t two = device.ops().attention_workspace(shape(1, 1, 1, 8192, 8192, 64, DType::kBF16));
  EXPECT_LE(two, 2 * one);
  EXPECT_LT(two, std::int64_t{8192} * 8192);
}

// One key/value head of many queries is cut into parts, and each thread has room for its part alone.
TEST(Attention, WorkspaceOfManyThreadsHoldsTheGradientsOfAPart) {
  const AttentionShape shape{
      .batch = 1, .query_heads = 32, .kv_heads = 1, .query_length = 8192, .key_length = 8192, .head_dim = 128};
  const std::int64_t keys = 2 * 8192 * 128 * 4, d_q_of_all = 32 * std::int64_t{8192} * 128 * 4;
  EXPECT_LT(largest_attention_workspace(shape, 64), 64 * (keys + d_q_of_all / 32));
}

TEST(Attention, MistakesAreNamed) {
  Doorbell bell;
  CpuDevice device(bell, {});
  Ops& ops = device.ops();
  EXPECT_THROW(ops.attention_workspace(shape(1, 3, 2, 4, 4, 4)), InternalError);
  EXPECT_THROW(ops.attention_workspace(shape(1, 2, 0, 4, 4, 4)), InternalError);
  EXPECT_THROW(ops.attention_workspace(shape(1, 2, 2, 4, 4, 0)), InternalError);
  EXPECT_THROW(ops.attention_workspace(shape(1, 2, 2, 4, 4, 4, DType::kF64)), InternalError);
  const AttentionShape s = shape(1, 2, 1, 4, 4, 4);
  const Tensors t(s);
  const TestTensor none(DType::kU8, {0}), enough(DType::kU8, {1 << 20});
  const auto forward = [&](TensorView k, TensorView workspace) -> std::string {
    try {
      ops.run(device.compute_stream(), op::AttentionForward{s, t.out.view(), t.lse.view(), t.q.view(), k, t.v.view(), workspace});
    } catch (const InternalError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(forward(t.q.view(), enough.view()).find("attention_forward: k is [1, 2, 4, 4], expected [1, 1, 4, 4]"),
            std::string::npos);
  EXPECT_NE(forward(t.k.view(), none.view()).find("a workspace of 0 bytes"), std::string::npos);
  EXPECT_THROW(ops.run(device.compute_stream(), op::AttentionBackward{s, t.d_q.view(), t.d_k.view(), t.d_v.view(), t.d_out.view(),
                                                                      t.out.view(), t.q.view(), t.k.view(), t.v.view(),
                                                                      t.lse.view(), none.view()}),
               InternalError);
}

TEST(Attention, MistakesOverACacheAreNamed) {
  Doorbell bell;
  CpuDevice device(bell, {});
  Ops& ops = device.ops();
  const AttentionShape s = shape(2, 2, 1, 1, 4, 4);
  const Tensors t(s);
  const TestTensor none(DType::kU8, {0}), enough(DType::kU8, {1 << 20});
  const auto attend = [&](const AttentionShape& as, std::vector<std::int64_t> first, const TestTensor& workspace) -> std::string {
    try {
      ops.run(device.compute_stream(), op::CachedAttention{as, first, t.out.view(), t.lse.view(), t.q.view(), t.k.view(),
                                                           t.v.view(), workspace.view()});
    } catch (const InternalError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THROW(ops.cached_attention_workspace(shape(1, 3, 2, 4, 4, 4)), InternalError);
  EXPECT_EQ(attend(s, {0, 3}, enough), "no error");
  EXPECT_NE(attend(s, {0, 3}, none).find("cached_attention: a workspace of 0 bytes"), std::string::npos);
  EXPECT_NE(attend(s, {0, 4}, enough).find("a first position of 4 in a cache of 4"), std::string::npos);
  EXPECT_NE(attend(s, {-1, 0}, enough).find("a first position of -1"), std::string::npos);
  EXPECT_NE(attend(s, {0}, enough).find("first positions of 1 samples, 2 samples"), std::string::npos);
  AttentionShape shifted = s, full = s;
  shifted.query_offset = 2, full.causal = false;
  EXPECT_NE(attend(shifted, {0, 3}, enough).find("offsets 2 and 0"), std::string::npos);
  EXPECT_NE(attend(full, {0, 3}, enough).find("causal false"), std::string::npos);
}

}  // namespace
}  // namespace trident
