// What is found out about GPUs, and that nothing is opened for it.
#include "device/cuda/cuda_gpus.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "device/cuda/kernels/kernels.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// A program of which no kernel is used has none, and so what every GPU needs; this one has one.
[[gnu::used]] const auto kUsed = &cuda_kernels::accumulate;

simulated::Settings gpus(int devices) {
  simulated::Settings settings;
  settings.devices = devices;
  return settings;
}

TEST(CudaGpus, AreListedWithoutOpeningAny) {
  const SimulatedScope scope(gpus(4));
  const CudaFacts facts = find_cuda_gpus();
  EXPECT_EQ(facts.problem, "");
  EXPECT_TRUE(contains(facts.libraries, "cuBLASLt")) << facts.libraries;
  ASSERT_EQ(facts.gpus.size(), 4u);
  std::set<std::string> ids;
  for (const GpuFacts& gpu : facts.gpus) {
    EXPECT_EQ(gpu.problem, "");
    EXPECT_EQ(gpu.name, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(gpu.compute_capability, 90);
    EXPECT_EQ(gpu.total_bytes, std::int64_t{79} << 30);
    ids.insert(gpu.id);
  }
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(facts.gpus[1].id, "GPU-41414141-4141-4141-4141-414141414141");
  EXPECT_EQ(facts.gpus[1].place, "00000000:1B:00.0");
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{});
}

TEST(CudaGpus, OnlyTheOneThatIsAskedForIsOpened) {
  simulated::Settings settings = gpus(4);
  settings.used_bytes = std::size_t{9} << 30;
  const SimulatedScope scope(settings);
  const CudaFacts facts = find_cuda_gpus();
  EXPECT_EQ(open_cuda_gpu(facts.gpus[2]), "");
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{2});
  EXPECT_EQ(free_bytes_of_cuda_gpu(2), std::int64_t{70} << 30);
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{2});
  close_cuda_gpu(2);
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{});
}

TEST(CudaGpus, OneOutOfOrderLeavesTheOthers) {
  const SimulatedScope scope(gpus(3));
  simulated::fail_next("cudaGetDeviceProperties", cudaErrorUnknown, 1);
  const CudaFacts facts = find_cuda_gpus();
  EXPECT_EQ(facts.problem, "");
  ASSERT_EQ(facts.gpus.size(), 3u);
  EXPECT_EQ(facts.gpus[0].problem + facts.gpus[2].problem, "");
  EXPECT_TRUE(contains(facts.gpus[1].problem, "cudaErrorUnknown")) << facts.gpus[1].problem;
  EXPECT_EQ(facts.gpus[1].number, 1);
}

TEST(CudaGpus, AProblemOfAllIsTheProblem) {
  simulated::Settings settings = gpus(1);
  settings.prohibited = 0;
  const SimulatedScope scope(settings);
  const CudaFacts facts = find_cuda_gpus();
  EXPECT_TRUE(contains(facts.problem, "GPU 0 (NVIDIA H100 80GB HBM3): its compute mode is Prohibited")) << facts.problem;
  EXPECT_EQ(simulated::opened_devices(), std::set<int>{});
}

TEST(CudaGpus, WhatOnlyOpeningTells) {
  const SimulatedScope scope(gpus(2));
  const CudaFacts facts = find_cuda_gpus();
  simulated::fail_next("cudaSetDevice", cudaErrorDevicesUnavailable);
  EXPECT_TRUE(contains(open_cuda_gpu(facts.gpus[1]), "another process holds the GPU"));
  simulated::fail_next("cudaFuncGetAttributes", cudaErrorECCUncorrectable);
  EXPECT_TRUE(contains(open_cuda_gpu(facts.gpus[1]), "cudaErrorECCUncorrectable"));
  EXPECT_EQ(open_cuda_gpu(facts.gpus[0]), "");
}

TEST(CudaGpus, AGpuWithoutCodeForItNamesBothSides) {
  simulated::Settings settings = gpus(1);
  settings.compute_capability = 80;
  const SimulatedScope scope(settings);
  const CudaFacts facts = find_cuda_gpus();
  EXPECT_EQ(facts.problem, "") << "the driver knows; nobody asks it before the GPU is opened";
  EXPECT_EQ(open_cuda_gpu(facts.gpus[0]), "this binary has code for 90a-real, and the GPU is sm_80; build with "
                                            "-DCMAKE_CUDA_ARCHITECTURES=80-real, or set device = cpu");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaGpus, NoDriverAndNoGpus) {
  simulated::Settings settings = gpus(1);
  settings.driver = simulated::Driver::kTooOld;
  {
    const SimulatedScope scope(settings);
    EXPECT_TRUE(contains(find_cuda_gpus().problem, "update the driver"));
  }
  const SimulatedScope scope(gpus(0));
  EXPECT_TRUE(contains(find_cuda_gpus().problem, "no GPU is visible"));
}

}  // namespace
}  // namespace trident
