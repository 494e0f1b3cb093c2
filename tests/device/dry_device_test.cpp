#include "device/dry/dry_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/check.h"
#include "device/cpu/cpu_device.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using ::testing::Each;

constexpr std::int64_t kTerabyte = std::int64_t{1} << 40;

TensorView view_of(const Buffer& memory, DType dtype, Shape shape) { return {memory.data(), dtype, shape, memory.where()}; }

TEST(DryDevice, TerabytesOfMemoryTakeNone) {
  DryDevice device(nullptr);
  const Buffer first = device.allocate((1 << 17) * kTerabyte, "first"), second = device.allocate(kTerabyte, "second");
  EXPECT_EQ(first.num_bytes(), (1 << 17) * kTerabyte);
  EXPECT_EQ(first.where(), MemoryKind::kDevice);
  const bool apart = first.data() + first.num_bytes() <= second.data() || second.data() + second.num_bytes() <= first.data();
  EXPECT_TRUE(apart);
  EXPECT_FALSE(device.has_bytes());
  EXPECT_EQ(device.allocate(0, "nothing").num_bytes(), 0);
  expect_parts(error_of<InternalError>([&] { device.allocate(std::int64_t{1} << 62, "too much"); }), {"too much"});
}

TEST(DryDeviceDeathTest, ItsMemoryCannotBeRead) {
  DryDevice device(nullptr);
  const Buffer memory = device.allocate(4096, "memory");
  EXPECT_DEATH(
      {
        const volatile std::byte byte = *memory.data();
        (void)byte;
      },
      "");
}

TEST(DryDevice, WhatIsWrittenIsReadAsZeros) {
  DryDevice device(nullptr);
  const Buffer memory = device.allocate(16, "memory");
  std::array<float, 4> values{1, 2, 3, 4};
  device.write(device.compute_stream(), view_of(memory, DType::kF32, {4}), values.data());
  device.read(device.compute_stream(), values.data(), view_of(memory, DType::kF32, {4}));
  EXPECT_THAT(values, Each(0.0f));
}

TEST(DryDevice, HostMemoryThatRanksShareHasBytes) {
  DryDevice device(nullptr);
  const Buffer memory = device.allocate_host_shared(64, "shared");
  EXPECT_EQ(memory.where(), MemoryKind::kHost);
  EXPECT_EQ(*memory.data(), std::byte{0});
}

TEST(DryDevice, OperandsAreChecked) {
  DryDevice device(nullptr);
  Stream& stream = device.compute_stream();
  const Buffer memory = device.allocate(kTerabyte, "memory");
  const auto view = [&](DType dtype, Shape shape) { return view_of(memory, dtype, shape); };
  device.ops().run(stream, op::SwigluForward{view(DType::kBF16, {1 << 20, 4096}), view(DType::kBF16, {1 << 20, 8192})});
  EXPECT_NE(error_of<InternalError>([&] {
              device.ops().run(stream, op::SwigluForward{view(DType::kBF16, {8, 16}), view(DType::kBF16, {8, 16})});
            }),
            "no error");
  EXPECT_NE(error_of<InternalError>([&] {
              device.ops().run(stream, op::AccumulateInto{view(DType::kBF16, {8}), view(DType::kBF16, {8})});
            }),
            "no error");
}

TEST(DryDevice, ProductsAndAttentionMustHaveBeenAnnounced) {
  DryDevice device(nullptr);
  Stream& stream = device.compute_stream();
  const Buffer memory = device.allocate(kTerabyte, "memory");
  const TensorView out = view_of(memory, DType::kF32, {4, 6}), a = view_of(memory, DType::kF32, {4, 5}),
                   b = view_of(memory, DType::kF32, {5, 6});
  const auto multiply = [&](Accumulate accumulate) {
    device.ops().run(stream, op::Matmul{{out, a, Transpose::kNo, b, Transpose::kNo, accumulate, {}}});
  };
  EXPECT_EQ(error_of<InternalError>([&] { multiply(Accumulate::kNo); }).find("no error"), std::string::npos);
  device.ops().prepare_matmul({.m = 4, .n = 6, .k = 5});
  multiply(Accumulate::kNo);
  EXPECT_NE(error_of<InternalError>([&] { multiply(Accumulate::kYes); }).find("not announced"), std::string::npos);

  const AttentionShape shape{.batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = 3, .key_length = 3, .head_dim = 4};
  const TensorView q = view_of(memory, DType::kF32, {1, 2, 3, 4}), k = view_of(memory, DType::kF32, {1, 1, 3, 4}),
                   lse = view_of(memory, DType::kF32, {1, 2, 3});
  const auto attend = [&] { device.ops().run(stream, op::AttentionForward{shape, q, lse, q, k, k, {}}); };
  EXPECT_NE(error_of<InternalError>(attend).find("not announced"), std::string::npos);
  device.ops().attention_workspace(shape);
  attend();
  const std::int64_t first[] = {0};
  const auto attend_cached = [&] { device.ops().run(stream, op::CachedAttention{shape, first, q, lse, q, k, k, {}}); };
  expect_parts(error_of<InternalError>(attend_cached), {"not announced"});  // attention of that shape is another operation
  device.ops().cached_attention_workspace(shape);
  attend_cached();
}

// A product and what follows it are what they are on the oracle's device: one operation, or those that stand for it.
TEST(DryDevice, WhatFollowsAProductIsFusedWhereTheOracleFuses) {
  class Oracle final : public DryOps {
   public:
    Oracle() : DryOps(nullptr) {}
    PreparedProduct prepare_fused(const MatmulShape&, Epilogue epilogue, std::int64_t) override {
      return {512, epilogue == Epilogue::kBias};
    }
  } oracle;
  class Names final : public OperationWatcher {
   public:
    void performed(OperationRef operation) override {
      std::visit([&](const auto* o) { seen.emplace_back(op::name_of(*o).name); }, operation);
    }
    void performed(const op::Fused& fused) override { seen.emplace_back(fused.name().name); }
    std::vector<std::string> seen;
  } names;
  DryOps ops(&oracle);
  ops.set_watcher(&names);
  DryStream stream("compute");
  DryDevice device(nullptr);
  const Buffer memory = device.allocate(kTerabyte, "memory");
  const auto view = [&](Shape s) { return view_of(memory, DType::kF32, s); };
  const MatmulShape shape{.m = 4, .n = 6, .k = 5};
  const auto product = [&](std::int64_t workspace) -> MatmulOperands {
    return {view({4, 6}), view({4, 5}), Transpose::kNo, view({5, 6}), Transpose::kNo, Accumulate::kNo,
            view_of(memory, DType::kU8, {workspace})};
  };
  const PreparedProduct bias = ops.prepare_fused(shape, Epilogue::kBias), gelu = ops.prepare_fused(shape, Epilogue::kBiasGelu);
  EXPECT_TRUE(bias.fused);
  EXPECT_FALSE(gelu.fused);
  EXPECT_EQ(bias.workspace, 512);
  ops.matmul_bias(stream, product(512), view({6}));
  EXPECT_EQ(names.seen, std::vector<std::string>{"matmul_bias"});
  names.seen.clear();
  ops.matmul_bias_gelu(stream, product(512), view({6}), view({4, 6}));
  EXPECT_EQ(names.seen, (std::vector<std::string>{"matmul", "gelu_forward"}));
}

// A call must pass what the oracle asks for: a workspace that is too small is a mistake here, too.
TEST(DryDevice, WorkspacesAreTheOracles) {
  Doorbell doorbell;
  CpuDevice oracle(doorbell, {});
  DryDevice device(&oracle.ops());
  const AttentionShape shape{.batch = 2, .query_heads = 4, .kv_heads = 2, .query_length = 64, .key_length = 64, .head_dim = 16};
  const std::int64_t bytes = oracle.ops().attention_workspace(shape);
  ASSERT_GT(bytes, 0);
  EXPECT_EQ(device.ops().attention_workspace(shape), bytes);
  const Buffer memory = device.allocate(kTerabyte, "memory");
  const auto view = [&](Shape s) { return view_of(memory, DType::kF32, s); };
  const auto attend = [&](std::int64_t workspace) {
    device.ops().run(device.compute_stream(), op::AttentionForward{shape, view({2, 4, 64, 16}), view({2, 4, 64}),
                                                                   view({2, 4, 64, 16}), view({2, 2, 64, 16}),
                                                                   view({2, 2, 64, 16}), view_of(memory, DType::kU8, {workspace})});
  };
  attend(bytes);
  EXPECT_NE(error_of<InternalError>([&] { attend(bytes - 1); }).find(fmt::format("{} needed", bytes)), std::string::npos);
  AttentionShape over_cache = shape;
  over_cache.query_length = 1;
  const std::int64_t cached = oracle.ops().cached_attention_workspace(over_cache);
  ASSERT_GT(cached, 0);
  EXPECT_EQ(device.ops().cached_attention_workspace(over_cache), cached);
  const std::int64_t first[] = {63, 5};
  EXPECT_NE(error_of<InternalError>([&] {
              device.ops().run(device.compute_stream(), op::CachedAttention{over_cache, first, view({2, 4, 1, 16}),
                                                                            view({2, 4, 1}), view({2, 4, 1, 16}),
                                                                            view({2, 2, 64, 16}), view({2, 2, 64, 16}),
                                                                            view_of(memory, DType::kU8, {cached - 1})});
            }).find(fmt::format("{} needed", cached)),
            std::string::npos);
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    const MatmulShape product{.m = 32, .n = 48, .k = 64, .in = in, .out = in};
    EXPECT_EQ(device.ops().prepare_matmul(product), oracle.ops().prepare_matmul(product)) << to_string(in);
  }
}

}  // namespace
}  // namespace trident
