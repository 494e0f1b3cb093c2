#include "parallel/cuda/nccl_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace trident {
namespace {

using Messages = NcclTraffic::Messages;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

TEST(NcclArguments, EveryDTypeMoves) {
  std::byte memory;
  const auto of = [&](DType dtype) { return nccl_elements({&memory, dtype, {3, 5}, MemoryKind::kDevice}); };
  EXPECT_THAT(of(DType::kF32), Pair(ncclFloat32, 15u));
  EXPECT_THAT(of(DType::kBF16), Pair(ncclBfloat16, 15u));
  EXPECT_THAT(of(DType::kF16), Pair(ncclFloat16, 15u));
  EXPECT_THAT(of(DType::kF64), Pair(ncclFloat64, 15u));
  EXPECT_THAT(of(DType::kI64), Pair(ncclInt64, 15u));
  EXPECT_THAT(of(DType::kI32), Pair(ncclInt32, 15u));
  EXPECT_THAT(of(DType::kU8), Pair(ncclUint8, 15u));
  EXPECT_THAT(of(DType::kU16), Pair(ncclUint8, 30u));
}

TEST(NcclArguments, ReductionsAreSumsAndMaxima) {
  EXPECT_EQ(nccl_reduction(ReduceOp::kSum), ncclSum);
  EXPECT_EQ(nccl_reduction(ReduceOp::kMax), ncclMax);
}

TEST(NcclArguments, ConfigurationsAreNonBlockingAndLimitedOnlyWhereAsked) {
  const ncclConfig_t free = nccl_config("tp", 0), limited = nccl_config("dp", 4);
  EXPECT_EQ(free.blocking, 0);
  EXPECT_EQ(free.maxCTAs, NCCL_CONFIG_UNDEF_INT);
  EXPECT_STREQ(free.commName, "tp");
  EXPECT_EQ(limited.blocking, 0);
  EXPECT_EQ(limited.maxCTAs, 4);
}

TEST(NcclArguments, MessagePathsAreOrderedPairs) {
  EXPECT_THAT(message_paths(4, Messages::kRare), IsEmpty());
  EXPECT_THAT(message_paths(1, Messages::kAll), IsEmpty());
  EXPECT_THAT(message_paths(2, Messages::kNeighbours), ElementsAre(Pair(0, 1), Pair(1, 0)));
  EXPECT_THAT(message_paths(4, Messages::kNeighbours),
              ElementsAre(Pair(0, 1), Pair(0, 3), Pair(1, 0), Pair(1, 2), Pair(2, 1), Pair(2, 3), Pair(3, 0), Pair(3, 2)));
  const auto all = message_paths(5, Messages::kAll);
  EXPECT_EQ(all.size(), 20u);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), 20u);
}

TEST(NcclArguments, PipelinesAndContextsSendToNeighbours) {
  for (const Axis axis : {Axis::kPipeline, Axis::kContext})
    EXPECT_EQ(nccl_options(axis, {}).traffic.messages, Messages::kNeighbours);
  for (const Axis axis : {Axis::kTensor, Axis::kData}) EXPECT_EQ(nccl_options(axis, {}).traffic.messages, Messages::kRare);
}

TEST(NcclArguments, WhatARunMayChoose) {
  const CudaOptions chosen{.nccl_max_ctas = {.tensor = 16, .data = 3, .pipeline = 2}, .nccl_timeout = 20};
  EXPECT_EQ(nccl_options(Axis::kData, {}).timeout_seconds, NcclOptions().timeout_seconds);
  EXPECT_EQ(nccl_options(Axis::kData, {}).traffic.max_ctas, 0);
  EXPECT_EQ(nccl_options(Axis::kData, chosen).timeout_seconds, 20);
  EXPECT_EQ(nccl_options(Axis::kTensor, chosen).traffic.max_ctas, 16);
  EXPECT_EQ(nccl_options(Axis::kData, chosen).traffic.max_ctas, 3);
  EXPECT_EQ(nccl_options(Axis::kPipeline, chosen).traffic.max_ctas, 2);
}

TEST(NcclArguments, VersionsAreShownAndCompared) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21903), "2.19.3");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
  const std::vector<int> names = {0, 4, 8};
  EXPECT_EQ(version_problem("tp", names, std::vector{22809, 22809, 22809}), std::nullopt);
  EXPECT_EQ(version_problem("tp", names, std::vector{22809, 22809, 22703}),
            "tp: rank 0 has NCCL 2.28.9 and rank 8 has NCCL 2.27.3; let all nodes load the same libnccl.so.2");
  EXPECT_THAT(version_problem("tp", names, std::vector{22809, 22203, 22203}),
              Optional(HasSubstr("tp: rank 4 has NCCL 2.22.3: 2.27 or later is needed")));
}

TEST(NcclArguments, SharedGpusAreNamed) {
  const std::vector<int> names = {1, 3, 5};
  EXPECT_EQ(shared_gpu("dp", names, std::vector<GpuId>{{1, 2}, {2, 1}, {1, 3}}), std::nullopt);
  EXPECT_EQ(shared_gpu("dp", names, std::vector<GpuId>{{1, 2}, {7, 7}, {7, 7}}),
            "dp: ranks 3 and 5 are on one GPU, which NCCL refuses; start a rank per GPU, or let ranks be threads of one process "
            "or exchange "
            "through the host");
}

TEST(NcclArguments, AnOrderOfLaunchesNeedsADriver) {
  EXPECT_TRUE(keeps_launch_order("1"));
  EXPECT_FALSE(keeps_launch_order("0"));
  EXPECT_FALSE(keeps_launch_order(nullptr));
  const std::vector<int> names = {2, 5};
  EXPECT_EQ(launch_order_problem("tp", names, std::vector{12030, 13000}), std::nullopt);
  EXPECT_EQ(launch_order_problem("tp", names, std::vector{0, 0}), std::nullopt) << "no order is kept";
  EXPECT_EQ(launch_order_problem("tp", names, std::vector{12030, 12020}),
            "tp: the driver of rank 5 is of CUDA 12.2: before 12.3 NCCL keeps the order of launches "
            "(NCCL_LAUNCH_ORDER_IMPLICIT=1) by letting each operation wait for the end of those before, and groups of ranks "
            "would wait for each other for ever; "
            "install a driver of CUDA 12.3 or later (545), or set cuda.nccl_any_order = true and cuda.nccl_max_ctas");
}

}  // namespace
}  // namespace trident
