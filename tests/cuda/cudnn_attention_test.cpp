// Attention on a CUDA device: the numbers of cuDNN's graphs and of our own kernels. What is computed here
// is what the graphs say, not how a GPU rounds it.
#include "device/cuda/cudnn_attention.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/cuda/attention_fixture.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

// ---- cuDNN's graphs

TEST(CudnnAttention, CausalAndFullWithSharedAndOwnKeyHeads) {
  for (const CudnnAttentionOptions& options : {CudnnAttentionOptions{}, fast(), in_small_pieces()}) {
    Fixture f(options);
    for (const std::int64_t kv_heads : {1, 2, 4}) {
      check_cudnn_numbers(f, shape(2, 4, kv_heads, 37, 37, 16, kH));
      check_cudnn_numbers(f, full(shape(2, 4, kv_heads, 40, 40, 8, kH)));
    }
  }
}

TEST(CudnnAttention, LengthsAndOffsets) {
  for (const CudnnAttentionOptions& options : {CudnnAttentionOptions{}, fast()}) {
    Fixture f(options);
    check_cudnn_numbers(f, at(shape(1, 2, 2, 5, 50, 24, kH), 45, 0));       // the last five of 50 positions
    check_cudnn_numbers(f, at(shape(2, 2, 1, 8, 20, 8, kH), 107, 100));     // a shift of 7
    check_cudnn_numbers(f, at(shape(2, 2, 1, 8, 20, 8, kH), 300, 100));     // all keys lie before: no mask
    check_cudnn_numbers(f, at(full(shape(2, 2, 1, 8, 20, 8, kH)), 0, 50));  // offsets mean nothing without the mask
    check_cudnn_numbers(f, shape(1, 2, 1, 20, 12, 8, kH));                  // more queries than keys
    check_cudnn_numbers(f, shape(3, 1, 1, 2, 1, 8, kH));
  }
}

TEST(CudnnAttention, NeitherTheCallersOrderNorTheWorkspaceMatters) {
  Fixture f;
  const AttentionShape small = shape(1, 2, 1, 9, 9, 8, kH), large = shape(2, 4, 2, 33, 33, 16, kH);
  const std::int64_t one = f.attention.prepare(large), two = f.attention.prepare(small);
  EXPECT_LT(two, one);
  EXPECT_EQ(f.attention.prepare(large), one);
  EXPECT_EQ(f.attention.workspace_bytes(small), two);
  const std::int64_t plans = simulated::cudnn_counts().plans;
  check_cudnn_numbers(f, small);
  check_cudnn_numbers(f, large);
  EXPECT_EQ(simulated::cudnn_counts().plans, plans);  // made once
}

bool same_results(const Tensors& a, const Tensors& b) {
  return a.out.same_bits(b.out) && a.lse.same_bits(b.lse) && a.d_q.same_bits(b.d_q) && a.d_k.same_bits(b.d_k) &&
         a.d_v.same_bits(b.d_v);
}

TEST(CudnnAttention, DeterminismIsTheDefaultAndDoesNotDependOnPieces) {
  const AttentionShape s = shape(4, 4, 2, 65, 65, 16, kH);
  Tensors first(s), again(s), pieces(s), samples(s);
  Fixture f, small(in_small_pieces()), one_sample({.d_score_bytes = 4 * 128 * 128 * 2});
  run(f, s, first);
  EXPECT_EQ(simulated::cudnn_counts().last_engine, 6);
  run(f, s, again);
  run(small, s, pieces);
  run(one_sample, s, samples);
  EXPECT_TRUE(same_results(first, again));
  EXPECT_TRUE(same_results(first, pieces));
  EXPECT_TRUE(same_results(first, samples));
  EXPECT_NE(small.attention.describe(s).find("in 4 pieces of 2 x 2 heads"), std::string::npos) << small.attention.describe(s);
  EXPECT_NE(one_sample.attention.describe(s).find("in 4 pieces of 1 x 4 heads"), std::string::npos)
      << one_sample.attention.describe(s);
  EXPECT_LT(small.attention.workspace_bytes(s), f.attention.workspace_bytes(s));
}

TEST(CudnnAttention, WithoutDeterminismTheWorkspaceDoesNotGrowWithTheSquareOfTheLength) {
  Fixture f(fast());
  const std::int64_t one = f.attention.prepare(shape(1, 2, 2, 1024, 1024, 64, kH));
  const std::int64_t two = f.attention.prepare(shape(1, 2, 2, 2048, 2048, 64, kH));
  EXPECT_LE(two, 2 * one);
}

TEST(CudnnAttention, EverythingIsGivenBack) {
  const simulated::CudnnCounts before = simulated::cudnn_counts();
  {
    Fixture f;
    check(f, shape(1, 2, 1, 9, 9, 8, kH));
    EXPECT_EQ(simulated::cudnn_counts().handles, before.handles + 1);
  }
  EXPECT_EQ(simulated::cudnn_counts().handles, before.handles);
  EXPECT_EQ(simulated::cudnn_counts().descriptors, before.descriptors);
}

// ---- our own kernels

TEST(OwnAttention, CausalAndFullInF32) {
  for (const std::int64_t kv_heads : {1, 2}) {
    check_own_numbers(shape(2, 2, kv_heads, 37, 37, 20, kF));
    check_own_numbers(full(shape(2, 2, kv_heads, 37, 37, 20, kF)));
  }
}

TEST(OwnAttention, TilesAndColumnGroups) {
  check_own_numbers(shape(1, 2, 1, 70, 70, 33, kF));
  check_own_numbers(shape(1, 1, 1, 64, 64, 64, kF));
  check_own_numbers(shape(1, 1, 1, 33, 40, 65, kF));
  check_own_numbers(shape(1, 1, 1, 10, 10, 130, kF));  // two groups of columns
  check_own_numbers(shape(1, 1, 1, 1, 1, 1, kF));
}

TEST(OwnAttention, HeadWidthsThatCudnnDoesNotTakeIn16Bits) {
  for (const DType half : {kH, kF16}) {
    check_own_numbers(shape(2, 4, 2, 37, 37, 20, half));
    check_own_numbers(shape(1, 2, 1, 12, 12, 70, half));
  }
}

TEST(CudnnAttention, TakesF16Too) {
  Fixture f;
  check_cudnn_numbers(f, shape(2, 4, 2, 37, 37, 16, kF16));
  check_cudnn_numbers(f, full(shape(1, 2, 1, 20, 33, 24, kF16)));
}

TEST(OwnAttention, OffsetsAndQueriesThatSeeNothing) {
  for (const DType dtype : {kF, kH}) {
    check_own_numbers(at(shape(1, 2, 1, 40, 60, 8, dtype), 100, 110));
    check_own_numbers(at(shape(1, 1, 1, 10, 10, 8, dtype), 0, 100));
    check_own_numbers(at(shape(1, 2, 2, 70, 10, 8, dtype), 0, 40));
  }
  check_own_numbers(at(shape(1, 2, 2, 5, 50, 24, kF), 45, 0));
}

TEST(OwnAttention, NoKeysOrNoQueries) {
  for (const DType dtype : {kF, kH}) {
    check_own_numbers(shape(1, 2, 1, 3, 0, 8, dtype));
    check_own_numbers(shape(1, 2, 1, 0, 3, 8, dtype));
    check_own_numbers(shape(0, 2, 1, 3, 3, 8, dtype));
  }
}

TEST(OwnAttention, LargeScoresDoNotOverflowAndANaNIsNotHidden) {
  Fixture f;
  AttentionShape s = shape(1, 1, 1, 40, 40, 8, kF);
  s.scale = 60.0f;
  Tensors large(s);
  run(f, s, large);
  for (const TestTensor* x : {&large.out, &large.lse, &large.d_q, &large.d_k, &large.d_v})
    for (const double value : x->values()) ASSERT_TRUE(std::isfinite(value));
  const AttentionShape four = shape(1, 1, 1, 4, 4, 4, kF);
  Tensors t(four);
  t.q.set(2 * 4 + 1, kNaN);
  run(f, four, t);
  EXPECT_TRUE(std::isfinite(t.out.at(0)));
  EXPECT_TRUE(std::isnan(t.out.at(2 * 4)));
  EXPECT_TRUE(std::isnan(t.lse.at(2)));
  EXPECT_TRUE(std::isnan(t.d_q.at(2 * 4)));
}

// What tensor parallelism relies on: a rank with fewer heads computes the same bits for those it has; and nothing depends on the
// order in which threads run.
TEST(OwnAttention, BitsDependOnAHeadAlone) {
  const AttentionShape all = shape(1, 4, 2, 45, 45, 16, kF), part = shape(1, 2, 1, 45, 45, 16, kF);
  Tensors whole(all), one(part);
  Fixture f;
  run(f, all, whole);
  const std::int64_t q_at = 2 * 45 * 16, k_at = 45 * 16;  // query heads 2 and 3 and their key head
  const auto cut = [](TestTensor& to, const TestTensor& from, std::int64_t first) {
    for (std::int64_t i = 0; i < to.view().num_elements(); ++i) to.set(i, from.at(first + i));
  };
  cut(one.q, whole.q, q_at), cut(one.k, whole.k, k_at), cut(one.v, whole.v, k_at), cut(one.d_out, whole.d_out, q_at);
  simulated::Settings reversed;
  reversed.fiber_order = simulated::FiberOrder::kReverse;
  simulated::configure(reversed);
  run(f, part, one);
  simulated::reset();
  const auto expect_equal = [](const TestTensor& a, const TestTensor& b, std::int64_t first) {
    for (std::int64_t i = 0; i < a.view().num_elements(); ++i) ASSERT_EQ(a.at(i), b.at(first + i));
  };
  expect_equal(one.out, whole.out, q_at);
  expect_equal(one.lse, whole.lse, 2 * 45);
  expect_equal(one.d_q, whole.d_q, q_at);
  expect_equal(one.d_k, whole.d_k, k_at);
  expect_equal(one.d_v, whole.d_v, k_at);
}

}  // namespace
}  // namespace trident::testing
