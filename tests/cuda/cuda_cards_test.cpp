// What is found out about cards, and that nothing is opened for it.
#include "device/cuda/cuda_cards.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "device/cuda/kernels/kernels.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// A program of which no kernel is used has none, and so what every card needs; this one has one.
[[gnu::used]] const auto kUsed = &cuda_kernels::accumulate;

simulated::Settings cards(int devices) {
  simulated::Settings settings;
  settings.devices = devices;
  return settings;
}

TEST(CudaCards, AreListedWithoutOpeningAny) {
  const SimulatedScope scope(cards(4));
  const CudaFacts facts = find_cuda_cards();
  EXPECT_EQ(facts.problem, "");
  EXPECT_TRUE(contains(facts.libraries, "cuBLASLt")) << facts.libraries;
  ASSERT_EQ(facts.cards.size(), 4u);
  std::set<std::string> ids;
  for (const CardFacts& card : facts.cards) {
    EXPECT_EQ(card.problem, "");
    EXPECT_EQ(card.name, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(card.compute_capability, 90);
    EXPECT_EQ(card.total_bytes, std::int64_t{79} << 30);
    ids.insert(card.id);
  }
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(facts.cards[1].id, "GPU-41414141-4141-4141-4141-414141414141");
  EXPECT_EQ(facts.cards[1].place, "00000000:1B:00.0");
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{});
}

TEST(CudaCards, OnlyTheOneThatIsAskedForIsOpened) {
  simulated::Settings settings = cards(4);
  settings.used_bytes = std::size_t{9} << 30;
  const SimulatedScope scope(settings);
  const CudaFacts facts = find_cuda_cards();
  EXPECT_EQ(open_cuda_card(facts.cards[2]), "");
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{2});
  EXPECT_EQ(free_bytes_of_cuda_card(2), std::int64_t{70} << 30);
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{2});
  close_cuda_card(2);
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{});
}

TEST(CudaCards, OneOutOfOrderLeavesTheOthers) {
  const SimulatedScope scope(cards(3));
  simulated::fail_next("cudaGetDeviceProperties", cudaErrorUnknown, 1);
  const CudaFacts facts = find_cuda_cards();
  EXPECT_EQ(facts.problem, "");
  ASSERT_EQ(facts.cards.size(), 3u);
  EXPECT_EQ(facts.cards[0].problem + facts.cards[2].problem, "");
  EXPECT_TRUE(contains(facts.cards[1].problem, "cudaErrorUnknown")) << facts.cards[1].problem;
  EXPECT_EQ(facts.cards[1].number, 1);
}

TEST(CudaCards, AProblemOfAllIsTheProblem) {
  simulated::Settings settings = cards(1);
  settings.prohibited = 0;
  const SimulatedScope scope(settings);
  const CudaFacts facts = find_cuda_cards();
  EXPECT_TRUE(contains(facts.problem, "card 0 (NVIDIA H100 80GB HBM3): its compute mode is Prohibited")) << facts.problem;
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{});
}

TEST(CudaCards, WhatOnlyOpeningTells) {
  const SimulatedScope scope(cards(2));
  const CudaFacts facts = find_cuda_cards();
  simulated::fail_next("cudaSetDevice", cudaErrorDevicesUnavailable);
  EXPECT_TRUE(contains(open_cuda_card(facts.cards[1]), "another process holds the GPU"));
  simulated::fail_next("cudaFuncGetAttributes", cudaErrorECCUncorrectable);
  EXPECT_TRUE(contains(open_cuda_card(facts.cards[1]), "cudaErrorECCUncorrectable"));
  EXPECT_EQ(open_cuda_card(facts.cards[0]), "");
}

TEST(CudaCards, ACardWithoutCodeForItNamesBothSides) {
  simulated::Settings settings = cards(1);
  settings.compute_capability = 80;
  const SimulatedScope scope(settings);
  const CudaFacts facts = find_cuda_cards();
  EXPECT_EQ(facts.problem, "") << "the driver knows; nobody asks it before the card is opened";
  EXPECT_EQ(open_cuda_card(facts.cards[0]), "this binary has code for 90a-real, and the card is sm_80; build with "
                                            "-DCMAKE_CUDA_ARCHITECTURES=80-real, or set device = cpu");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaCards, NoDriverAndNoCards) {
  simulated::Settings settings = cards(1);
  settings.driver = simulated::Driver::kTooOld;
  {
    const SimulatedScope scope(settings);
    EXPECT_TRUE(contains(find_cuda_cards().problem, "update the driver"));
  }
  const SimulatedScope scope(cards(0));
  EXPECT_TRUE(contains(find_cuda_cards().problem, "no GPU is visible"));
}

}  // namespace
}  // namespace trident
