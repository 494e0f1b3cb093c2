// Attention on a CUDA device: the numbers of cuDNN's graphs under every option and of our own kernels. What is computed here
// is what the graphs say, not how a GPU rounds it. Masks, offsets and intervals of our kernels are cases of tests/conformance,
// which run on them, too.
#include "device/cuda/cudnn_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "device/no_allocation.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cudnn.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/support/attention_tensors.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

// Attention on a CUDA device against plain loops in double.
AttentionShape shape(std::int64_t b, std::int64_t n, std::int64_t k, std::int64_t sq, std::int64_t sk, std::int64_t d,
                     DType dtype) {
  AttentionShape s;
  s.batch = b, s.query_heads = n, s.kv_heads = k, s.query_length = sq, s.key_length = sk, s.head_dim = d, s.dtype = dtype;
  s.scale = 1.0f / std::sqrt(static_cast<float>(d));
  return s;
}
AttentionShape full(AttentionShape s) {
  s.causal = false;
  return s;
}
AttentionShape at(AttentionShape s, std::int64_t query_offset, std::int64_t key_offset) {
  s.query_offset = query_offset, s.key_offset = key_offset;
  return s;
}

AttentionShape seen(AttentionShape s, std::int64_t most, float softcap = 0) {
  s.interval = most, s.softcap = softcap;
  return s;
}

constexpr DType kF = DType::kF32, kH = DType::kBF16, kF16 = DType::kF16;

struct Fixture {
  explicit Fixture(const CudnnAttentionOptions& options = {}) : handle(0), attention(handle, options) {}
  CudnnHandle handle;
  CudnnAttention attention;
  TestStream stream;
};

// Forward and backward; the results land in `t`.
void run(Fixture& f, const AttentionShape& s, Tensors& t) {
  const std::int64_t bytes = f.attention.prepare(s);
  TestTensor scratch(DType::kU8, {bytes});
  const DeviceTensor workspace(scratch);
  const DeviceTensor q(t.q), k(t.k), v(t.v), d_out(t.d_out), out(t.out), lse(t.lse), d_q(t.d_q), d_k(t.d_k), d_v(t.d_v),
      first_key(t.first_key);
  {
    const NoAllocationScope step("attention");
    f.attention.forward(f.stream.get(), s, out.view(), lse.view(), q.view(), k.view(), v.view(), first_key.view(),
                        workspace.view().data());
    f.attention.backward(f.stream.get(), s, d_q.view(), d_k.view(), d_v.view(), d_out.view(), out.view(), q.view(), k.view(),
                         v.view(), lse.view(), first_key.view(), workspace.view().data());
  }
  f.stream.synchronize();
  for (const DeviceTensor* x : {&workspace, &out, &lse, &d_q, &d_k, &d_v}) EXPECT_TRUE(x->guards_intact());
  t.out = out.download(), t.lse = lse.download(), t.d_q = d_q.download(), t.d_k = d_k.download(), t.d_v = d_v.download();
}

void check(Fixture& f, const AttentionShape& s, const reference::Intervals& intervals = {}) {
  SCOPED_TRACE(describe(s));
  Tensors t(s, intervals);
  run(f, s, t);
  expect_attention(s, t);
}

// That `s` goes to cuDNN in both directions, and its numbers.
void check_cudnn_numbers(Fixture& f, const AttentionShape& s, const reference::Intervals& intervals = {}) {
  check(f, s, intervals);
  EXPECT_TRUE(f.attention.notes().empty()) << f.attention.notes().front();
}
// That our own kernels compute both directions of `s`, and their numbers.
void check_own_numbers(const AttentionShape& s, const reference::Intervals& intervals = {}) {
  Fixture f;
  const std::int64_t executions = simulated::cudnn_counts().executions;
  check(f, s, intervals);
  EXPECT_EQ(simulated::cudnn_counts().executions, executions) << describe(s);
}

CudnnAttentionOptions fast() { return {.determinism = Determinism::kNotRequired}; }
CudnnAttentionOptions in_small_pieces() { return {.d_score_bytes = 1}; }

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

TEST(CudnnAttention, LengthsAndOffsetsMayDiffer) {
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

TEST(CudnnAttention, SeesIntervalsAndBoundsScores) {
  for (const CudnnAttentionOptions& options : {CudnnAttentionOptions{}, fast(), in_small_pieces()}) {
    Fixture f(options);
    for (const float softcap : {0.0f, 2.0f}) {
      check_cudnn_numbers(f, seen(shape(2, 4, 2, 40, 40, 16, kH), 12, softcap), {{0, 5, 33}, 12});
      check_cudnn_numbers(f, seen(shape(3, 2, 1, 40, 40, 8, kH), 40, softcap), {{0, 1, 2, 30}});
      check_cudnn_numbers(f, seen(at(shape(1, 2, 2, 8, 50, 24, kH), 42, 0), 30, softcap), {{0, 47}, 30});
    }
    AttentionShape bounded = shape(2, 4, 2, 37, 37, 16, kF16);
    bounded.softcap = 2;
    check_cudnn_numbers(f, bounded);
    check_cudnn_numbers(f, full(bounded));
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
  expect_parts(small.attention.describe(s), {"in 4 pieces of 2 x 2 heads"});
  expect_parts(one_sample.attention.describe(s), {"in 4 pieces of 1 x 4 heads"});
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

TEST(OwnAttention, TilesAndColumnGroupsMayBePartial) {
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

// Tensor parallelism relies on this: a rank with fewer heads computes the same bits for those it has; and nothing depends on the
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

// Who computes which attention, mistakes and failures.

// ---- who computes what

constexpr std::size_t kCudnn = 91900;

TEST(AttentionRules, ReasonsAreGiven) {
  const auto why = [](const AttentionShape& s, AttentionDirection direction, int major, std::size_t cudnn = kCudnn) {
    return attention_pass(s, direction, major, cudnn, {}).why_not;
  };
  constexpr auto kForward = AttentionDirection::kForward, kBackward = AttentionDirection::kBackward;
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 64, kH), kForward, 9), "");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 64, DType::kF16), kBackward, 9), "");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 64, kF), kForward, 9), "it has no attention in f32");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 60, kH), kForward, 9), "a head width of 60 is not a multiple of 8");
  EXPECT_EQ(why(at(shape(1, 1, 1, 8, 8, 64, kH), 0, 1), kForward, 9), "some queries see no key");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 0, 64, kH), kForward, 9), "there are no queries or no keys");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 256, kH), kBackward, 9), "");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 264, kH), kForward, 9), "");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 264, kH), kBackward, 9),
            "its backward pass ends at a head width of 256 on GPUs of compute capability 9.x");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 192, kH), kForward, 8), "");
  EXPECT_EQ(why(shape(1, 1, 1, 8, 8, 192, kH), kBackward, 8),
            "its backward pass ends at a head width of 128 on GPUs of compute capability 8.x");
  EXPECT_EQ(why(seen(shape(1, 1, 1, 8, 8, 64, kH), 4, 30), kBackward, 9), "");
  EXPECT_EQ(why(seen(at(shape(1, 1, 1, 8, 8, 64, kH), 8, 8), 4), kForward, 9),
            "intervals are of keys that do not begin at position 0");
  EXPECT_EQ(why(seen(shape(1, 1, 1, 9, 8, 64, kH), 4), kForward, 9), "queries behind the last key may see none");
  EXPECT_EQ(attention_pass(seen(shape(2, 1, 1, 9, 9, 64, kH), 4), kBackward, 9, kCudnn, in_small_pieces()).why_not, "");
  EXPECT_EQ(attention_pass(seen(shape(2, 4, 2, 9, 9, 64, kH), 4), kBackward, 9, kCudnn, in_small_pieces()).why_not,
            "first keys of pieces of its backward pass would not begin at multiples of 16 bytes");
  EXPECT_EQ(why(shape(1, 1, 1, 1, 1, 64, kH), kForward, 9), "");
  for (const std::int64_t keys : {1, 128})
    EXPECT_EQ(why(full(shape(1, 1, 1, 1, keys, 64, kH)), kBackward, 9), "its backward pass wants more than one query");
}

// Faults of the library that random operands do not show.
TEST(AttentionRules, BackwardPassesThatGoWrongAreLeftToOurKernels) {
  const auto taken = [](const AttentionShape& s, int major = 9, std::size_t cudnn = kCudnn) {
    EXPECT_TRUE(attention_pass(s, AttentionDirection::kForward, major, cudnn, {}).by_cudnn);
    return attention_pass(s, AttentionDirection::kBackward, major, cudnn, {}).by_cudnn;
  };
  const auto keys = [](std::int64_t count) { return shape(1, 2, 1, 128, count, 64, kH); };
  for (const std::int64_t count : {64, 192}) {
    EXPECT_FALSE(taken(full(keys(count))));
    EXPECT_FALSE(taken(at(keys(count), count, 0))) << "the last queries lie behind all keys";
    EXPECT_TRUE(taken(full(keys(count)), 8));
  }
  EXPECT_FALSE(taken(keys(64))) << "queries behind the last key";
  EXPECT_TRUE(taken(keys(192))) << "the causal mask hides what lies behind the keys";
  EXPECT_TRUE(taken(seen(keys(192), 16)));
  for (const std::int64_t count : {128, 200, 256}) EXPECT_TRUE(taken(full(keys(count))));
  for (const std::int64_t count : {192, 200}) {
    EXPECT_FALSE(taken(keys(count), 8, 91500));
    EXPECT_TRUE(taken(keys(count), 8, 91501));
  }
  EXPECT_TRUE(taken(keys(256), 9, 91002));
}

TEST(AttentionRules, PiecesBoundTheScores) {
  const auto pass = [](const AttentionShape& s, std::int64_t bytes) {
    return attention_pass(s, AttentionDirection::kBackward, 9, kCudnn, {.d_score_bytes = bytes});
  };
  constexpr std::int64_t kMiB = 1 << 20;
  // 12 heads of 1024 x 1024 take 24 MiB a sample.
  EXPECT_EQ(pass(shape(32, 12, 12, 1024, 1024, 64, kH), 256 * kMiB).piece.batch, 8);
  EXPECT_EQ(pass(shape(32, 12, 12, 1024, 1024, 64, kH), 256 * kMiB).pieces, 4);
  EXPECT_EQ(pass(shape(32, 12, 12, 1024, 1024, 64, kH), 1024 * kMiB).pieces, 1);
  // 32 heads of 4096 x 4096 take 1 GiB a sample: 4 at a time take 128 MiB.
  const AttentionPass llama = pass(shape(4, 32, 8, 4096, 4096, 128, kH), 256 * kMiB);
  EXPECT_EQ(llama.piece.query_heads, 4);
  EXPECT_EQ(llama.piece.kv_heads, 1);
  EXPECT_EQ(llama.piece.batch, 2);
  EXPECT_EQ(llama.pieces, 16);
  // One head of one sample is the least.
  EXPECT_EQ(pass(shape(2, 4, 2, 8192, 8192, 64, kH), 1).piece.batch, 1);
  // Pieces of 37 rows would not begin at multiples of 16 bytes, pieces of 4 x 37 do.
  EXPECT_EQ(pass(shape(8, 1, 1, 37, 37, 64, kH), 1).piece.batch, 4);
  EXPECT_EQ(pass(shape(3, 1, 1, 37, 37, 64, kH), 1).piece.batch, 3);
  EXPECT_EQ(attention_pass(shape(8, 4, 4, 64, 64, 64, kH), AttentionDirection::kForward, 9, kCudnn, in_small_pieces()).pieces, 1);
  EXPECT_EQ(attention_pass(shape(8, 4, 4, 64, 64, 64, kH), AttentionDirection::kBackward, 9, kCudnn, fast()).pieces, 1);
}

TEST(CudnnAttention, SaysWhoComputes) {
  Fixture f;
  const AttentionShape fused = shape(1, 4, 2, 16, 16, 16, kH), odd = shape(1, 4, 2, 16, 16, 20, kH),
                       exact = shape(1, 4, 2, 16, 16, 16, kF);
  for (const AttentionShape& s : {fused, odd, exact}) f.attention.prepare(s);
  EXPECT_EQ(f.attention.describe(fused).find(
                "attention B1 N4 K2 Sq16 Sk16 D16 causal bf16: forward cuDNN engine 6, deterministic backward cuDNN engine 6,"),
            0u)
      << f.attention.describe(fused);
  expect_parts(f.attention.describe(exact), {"forward own kernels (cuDNN: it has no attention in f32)"});
  ASSERT_EQ(f.attention.notes().size(), 2u);  // of the odd head width; f32 is meant to be exact, not fast
  expect_parts(f.attention.notes()[0], {"attention B1 N4 K2 Sq16 Sk16 D20 causal bf16: forward computed by our own kernels"});
  expect_parts(f.attention.notes()[1], {"a head width of 20 is not a multiple of 8"});
}

TEST(CudnnAttention, AShapeWithoutAPlanFallsBackAndSaysSo) {
  Fixture f;
  const AttentionShape wide = shape(1, 1, 1, 4, 4, 264, kH);  // the simulated engines end at 256
  check(f, wide);
  ASSERT_EQ(f.attention.notes().size(), 2u);
  expect_parts(f.attention.notes()[0], {"cuDNN proposes no engine"});
}

// ---- mistakes and failures

TEST(CudnnAttention, MistakesAreNamed) {
  Fixture f;
  const AttentionShape s = shape(1, 2, 1, 16, 16, 8, kH);
  Tensors t(s);
  const DeviceTensor q(t.q), k(t.k), v(t.v), out(t.out), lse(t.lse), workspace(TestTensor(DType::kU8, {1 << 20}));
  const auto forward = [&](TensorView first) {
    return error_of<InternalError>([&] {
      f.attention.forward(f.stream.get(), s, out.view(), lse.view(), first, k.view(), v.view(), {}, workspace.view().data());
    });
  };
  expect_parts(forward(q.view()), {"attention B1 N2 K1 Sq16 Sk16 D8 causal bf16 was not prepared"});
  f.attention.prepare(s);
  expect_parts(forward(t.q.view()), {"tensor 1: not 512 bytes in the memory of device 0"});
  expect_parts(forward({q.view().data() + 8, kH, q.view().shape(), MemoryKind::kDevice}), {"tensor 1 is not 16-byte aligned"});
}

TEST(CudnnAttention, FailuresOfTheLibraryAreNamed) {
  EXPECT_EQ(cudnn_version_problem(91900), std::nullopt);
  EXPECT_EQ(cudnn_version_problem(91002), std::nullopt);
  EXPECT_EQ(cudnn_version_problem(91001).value_or(""), "cuDNN 9.10.1 is too old for attention; install 9.10.2 or a later 9.x");
  simulated::fail_next("cudnnGetVersion", 90500);
  expect_parts(error_of<ConfigError>([] { CudnnHandle handle(0); }), {"device = cuda: cuDNN 9.5.0", "install 9.10.2"});
  simulated::fail_next("cudnnCreate", CUDNN_STATUS_NOT_INITIALIZED);
  expect_parts(error_of<ConfigError>([] { CudnnHandle handle(0); }),
               {"cannot be used on CUDA device 0: CUDNN_STATUS_NOT_INITIALIZED; nvidia-smi must work"});
  Fixture f;
  const AttentionShape s = shape(1, 2, 1, 16, 16, 8, kH);
  simulated::fail_next("cudnnBackendSetAttribute", CUDNN_STATUS_BAD_PARAM);
  const std::string planning = error_of<InternalError>([&] { f.attention.prepare(s); });
  expect_parts(planning, {"attention forward B1 N2 K1 Sq16 Sk16 D8 causal bf16: ", "cudnnBackendSetAttribute",
                          "CUDNN_STATUS_BAD_PARAM: asked for by a test"});
  f.attention.prepare(s);
  Tensors t(s);
  simulated::fail_next("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
  const std::string running = error_of<InternalError>([&] { run(f, s, t); });
  expect_parts(running,
               {"attention forward B1 N2 K1 Sq16 Sk16 D8 causal bf16: cudnnBackendExecute returned CUDNN_STATUS_EXECUTION_FAILED"});
  simulated::reset();
}

}  // namespace
}  // namespace trident::testing
