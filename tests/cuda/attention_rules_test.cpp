// Who computes which attention, mistakes and failures.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/cuda/attention_fixture.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

// ---- who computes what

TEST(AttentionRules, ReasonsAreGiven) {
  const auto why = [](const AttentionShape& s, AttentionDirection direction, int major) {
    return attention_pass(s, direction, major, {}).why_not;
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
  EXPECT_EQ(why(shape(1, 1, 1, 1, 1, 64, kH), kForward, 9), "");
  EXPECT_EQ(why(shape(1, 1, 1, 1, 1, 64, kH), kBackward, 9), "its backward pass wants more than one query and key");
}

TEST(AttentionRules, PiecesBoundTheScores) {
  const auto pass = [](const AttentionShape& s, std::int64_t bytes) {
    return attention_pass(s, AttentionDirection::kBackward, 9, {.d_score_bytes = bytes});
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
  EXPECT_EQ(attention_pass(shape(8, 4, 4, 64, 64, 64, kH), AttentionDirection::kForward, 9, in_small_pieces()).pieces, 1);
  EXPECT_EQ(attention_pass(shape(8, 4, 4, 64, 64, 64, kH), AttentionDirection::kBackward, 9, fast()).pieces, 1);
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
  EXPECT_NE(f.attention.describe(exact).find("forward own kernels (cuDNN: it has no attention in f32)"), std::string::npos);
  ASSERT_EQ(f.attention.notes().size(), 2u);  // of the odd head width; f32 is meant to be exact, not fast
  EXPECT_NE(f.attention.notes()[0].find("attention B1 N4 K2 Sq16 Sk16 D20 causal bf16: forward computed by our own kernels"),
            std::string::npos);
  EXPECT_NE(f.attention.notes()[1].find("a head width of 20 is not a multiple of 8"), std::string::npos);
}

TEST(CudnnAttention, AShapeWithoutAPlanFallsBackAndSaysSo) {
  Fixture f;
  const AttentionShape wide = shape(1, 1, 1, 4, 4, 264, kH);  // the simulated engines end at 256
  check(f, wide);
  ASSERT_EQ(f.attention.notes().size(), 2u);
  EXPECT_NE(f.attention.notes()[0].find("cuDNN proposes no engine"), std::string::npos) << f.attention.notes()[0];
}

// ---- mistakes and failures

TEST(CudnnAttention, MistakesAreNamed) {
  Fixture f;
  const AttentionShape s = shape(1, 2, 1, 16, 16, 8, kH);
  Tensors t(s);
  const DeviceTensor q(t.q), k(t.k), v(t.v), out(t.out), lse(t.lse), workspace(TestTensor(DType::kU8, {1 << 20}));
  const auto forward = [&](TensorView first) {
    return error_of<InternalError>([&] {
      f.attention.forward(f.stream.get(), s, out.view(), lse.view(), first, k.view(), v.view(), workspace.view().data());
    });
  };
  EXPECT_NE(forward(q.view()).find("attention B1 N2 K1 Sq16 Sk16 D8 causal bf16 was not prepared"), std::string::npos);
  f.attention.prepare(s);
  EXPECT_NE(forward(t.q.view()).find("tensor 1: not 512 bytes in the memory of device 0"), std::string::npos)
      << forward(t.q.view());
  EXPECT_NE(forward({q.view().data() + 8, kH, q.view().shape(), MemoryKind::kDevice}).find("tensor 1 is not 16-byte aligned"),
            std::string::npos);
}

TEST(CudnnAttention, FailuresOfTheLibraryAreNamed) {
  EXPECT_EQ(cudnn_version_problem(91900), std::nullopt);
  EXPECT_EQ(cudnn_version_problem(91002), std::nullopt);
  EXPECT_EQ(cudnn_version_problem(91001).value_or(""), "cuDNN 9.10.1 is too old for attention; install 9.10.2 or a later 9.x");
  simulated::fail_next("cudnnGetVersion", 90500);
  EXPECT_EQ(error_of<ConfigError>([] { CudnnHandle handle(0); }),
            "device = cuda: cuDNN 9.5.0 is too old for attention; install 9.10.2 or a later 9.x");
  simulated::fail_next("cudnnCreate", CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_NE(error_of<ConfigError>([] {
              CudnnHandle handle(0);
            }).find("cannot be used on CUDA device 0: CUDNN_STATUS_NOT_INITIALIZED; nvidia-smi must work"),
            std::string::npos);
  Fixture f;
  const AttentionShape s = shape(1, 2, 1, 16, 16, 8, kH);
  simulated::fail_next("cudnnBackendSetAttribute", CUDNN_STATUS_BAD_PARAM);
  const std::string planning = error_of<InternalError>([&] { f.attention.prepare(s); });
  EXPECT_NE(planning.find("attention forward B1 N2 K1 Sq16 Sk16 D8 causal bf16: "), std::string::npos) << planning;
  EXPECT_NE(planning.find("cudnnBackendSetAttribute"), std::string::npos) << planning;
  EXPECT_NE(planning.find("CUDNN_STATUS_BAD_PARAM: asked for by a test"), std::string::npos) << planning;
  f.attention.prepare(s);
  Tensors t(s);
  simulated::fail_next("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
  const std::string running = error_of<InternalError>([&] { run(f, s, t); });
  EXPECT_NE(running.find(
                "attention forward B1 N2 K1 Sq16 Sk16 D8 causal bf16: cudnnBackendExecute returned CUDNN_STATUS_EXECUTION_FAILED"),
            std::string::npos)
      << running;
  simulated::reset();
}

}  // namespace
}  // namespace trident::testing
