// Memory of the device and pinned memory, and what errors of CUDA become.
#include "device/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "core/check.h"
#include "device/cuda/cuda_background_reads.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_gpus.h"
#include "device/cuda/kernels/kernels.h"
#include "device/no_allocation.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/cuda/stream_rank.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(CudaMemory, IsZeroFilledAndAligned) {
  const SimulatedScope scope;
  const Buffer buffer = allocate_cuda(0, 1001, "values");
  EXPECT_EQ(buffer.where(), MemoryKind::kDevice);
  EXPECT_EQ(buffer.num_bytes(), 1001);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
  std::vector<char> host(1001, 'x');
  ASSERT_EQ(cudaMemcpy(host.data(), buffer.data(), 1001, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(std::count(host.begin(), host.end(), '\0'), 1001);
  EXPECT_EQ(allocate_cuda(0, 0, "nothing").data(), nullptr);
}

TEST(CudaMemory, IsOnTheDeviceAskedFor) {
  simulated::Settings settings;
  settings.devices = 3;
  const SimulatedScope scope(settings);
  const Buffer a = allocate_cuda(2, 10, "a"), b = allocate_cuda(1, 10, "b");
  EXPECT_EQ(simulated::memory_device(a.data()), 2);
  EXPECT_EQ(simulated::memory_device(b.data()), 1);
  // Released by a thread that worked elsewhere.
  use_cuda_device(0);
}

TEST(CudaMemory, PinnedMemoryIsZeroFilledAndTheHostsOwn) {
  const SimulatedScope scope;
  const Buffer buffer = allocate_pinned(5000, "staging");
  EXPECT_EQ(buffer.where(), MemoryKind::kPinned);
  EXPECT_EQ(std::count(buffer.data(), buffer.data() + 5000, std::byte{0}), 5000);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, buffer.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(allocate_pinned(0, "nothing").data(), nullptr);
}

TEST(CudaMemory, OutOfMemorySaysWhatHowMuchAndWhatToDo) {
  simulated::Settings settings;
  settings.total_bytes = 1 << 20;
  settings.used_bytes = 300'000;
  const SimulatedScope scope(settings);
  const Buffer first = allocate_cuda(0, 512'000, "parameters");
  expect_parts(error_of<ConfigError>([] { allocate_cuda(0, 2'000'000, "activations"); }),
               {"memory: activations needs 2.0 MB of CUDA device 0 (NVIDIA H100 80GB HBM3)", "0.2 of 1.0 MB free", "batch.micro",
                "batch.sequence", "recompute.policy", "recompute.head_chunk", "parallel.zero"});
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the runtime still has the error that was thrown";
  allocate_cuda(0, 200'000, "what fits");
  simulated::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
  expect_parts(error_of<ConfigError>([] { allocate_pinned(3'000'000, "staging"); }),
               {"memory: staging needs 3.0 MB of page-locked host memory", "fewer ranks"});
}

TEST(CudaMemory, IsNotAllocatedInsideAStep) {
  const SimulatedScope scope;
  const auto inside = [](auto allocate) {
    return error_of<InternalError>([&] {
      const NoAllocationScope step("step");
      allocate();
    });
  };
  expect_parts(inside([] { allocate_cuda(0, 8, "late"); }), {"late"});
  expect_parts(inside([] { allocate_pinned(8, "late"); }), {"late"});
}

TEST(CudaMemory, NothingIsKeptWhenFillingFails) {
  const SimulatedScope scope;
  simulated::fail_next("cudaMemset", cudaErrorInvalidValue);
  EXPECT_THROW(allocate_cuda(0, 100, "values"), InternalError);  // the scope counts what is left
}

TEST(CudaError, SuccessIsSilent) { check_cuda(cudaSuccess, "nothing"); }

TEST(CudaError, AMissingDriverIsNamed) {
  simulated::Settings settings;
  settings.driver = simulated::Driver::kNone;
  const SimulatedScope scope(settings);
  expect_parts(error_of<ConfigError>([] { use_cuda_device(0); }),
               {"CUDA device 0: cudaErrorInsufficientDriver", "no NVIDIA driver", "device = cpu"});
}

TEST(CudaError, ADriverThatIsTooOldIsNamed) {
  simulated::Settings settings;
  settings.driver = simulated::Driver::kTooOld;
  const SimulatedScope scope(settings);
  EXPECT_EQ(error_of<ConfigError>([] { use_cuda_device(0); }),
            fmt::format("CUDA device 0: cudaErrorInsufficientDriver (CUDA driver version is insufficient for CUDA runtime "
                        "version); the NVIDIA driver is for "
                        "CUDA 12.4 and this binary needs {}; update the driver or set device = cpu",
                        cuda_version_text(CUDART_VERSION)));
}

TEST(CudaError, FewerDevicesThanAskedForAreCounted) {
  simulated::Settings settings;
  settings.devices = 2;
  const SimulatedScope scope(settings);
  use_cuda_device(1);
  expect_parts(error_of<ConfigError>([] { use_cuda_device(2); }),
               {"cudaErrorInvalidDevice (invalid device ordinal) on CUDA device 1; there are fewer GPUs"});
  settings.devices = 0;
  simulated::configure(settings);
  expect_parts(error_of<ConfigError>([] { use_cuda_device(0); }), {"CUDA_VISIBLE_DEVICES"});
}

// Who is to blame decides the type, and so the exit code.
TEST(CudaError, EveryKindHasItsTypeAndRemedy) {
  const SimulatedScope scope;
  const auto setup = [](cudaError_t error) { return error_of<ConfigError>([&] { check_cuda(error, "test"); }); };
  const auto hardware = [](cudaError_t error) { return error_of<CommunicationError>([&] { check_cuda(error, "test"); }); };
  const auto program = [](cudaError_t error) { return error_of<InternalError>([&] { check_cuda(error, "test"); }); };
  expect_parts(setup(cudaErrorDevicesUnavailable),
               {"test: cudaErrorDevicesUnavailable", "CUDA device 0", "another process holds the GPU", "compute mode"});
  expect_parts(setup(cudaErrorMemoryAllocation), {"batch.micro"});
  expect_parts(setup(cudaErrorNoKernelImageForDevice), {"CMAKE_CUDA_ARCHITECTURES"});
  expect_parts(setup(cudaErrorSystemNotReady), {"nvidia-smi"});
  expect_parts(hardware(cudaErrorECCUncorrectable), {"Xid"});
  expect_parts(hardware(cudaErrorNvlinkUncorrectable), {"checkpoint"});
  expect_parts(hardware(static_cast<cudaError_t>(226)), {"Xid"});
  expect_parts(program(cudaErrorIllegalAddress), {"a kernel started earlier failed"});
  expect_parts(program(cudaErrorInvalidValue), {"please report it"});
}

TEST(CudaError, VersionsAreWrittenInWords) {
  EXPECT_EQ(cuda_version_text(13000), "CUDA 13.0");
  EXPECT_EQ(cuda_version_text(12090), "CUDA 12.9");
}

// Facts about GPUs are found out without opening anything.

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
  expect_parts(open_cuda_gpu(facts.gpus[0]),
               {"code for 90a-real", "the GPU is sm_80", "-DCMAKE_CUDA_ARCHITECTURES=80-real", "device = cpu"});
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaGpus, NoDriverAndNoGpusAreTold) {
  simulated::Settings settings = gpus(1);
  settings.driver = simulated::Driver::kTooOld;
  {
    const SimulatedScope scope(settings);
    EXPECT_TRUE(contains(find_cuda_gpus().problem, "update the driver"));
  }
  const SimulatedScope scope(gpus(0));
  EXPECT_TRUE(contains(find_cuda_gpus().problem, "no GPU is visible"));
}

// Reads beside the rank's work on the simulated CUDA, whose streams run late and in every order: neither before the values are
// there nor after they change.

constexpr std::int64_t kBytes = 5000;
constexpr std::size_t kUnits = 3;

void fill(CudaStream& stream, const Buffer& values, int value) {
  check_cuda(cudaMemsetAsync(values.data(), value, static_cast<std::size_t>(values.num_bytes()), stream.handle()), "filling");
}

ConstTensorView view(const Buffer& values) { return {values.data(), DType::kU8, {values.num_bytes()}, MemoryKind::kDevice}; }

bool holds(const Buffer& read, int value) {
  return std::all_of(read.data(), read.data() + read.num_bytes(), [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

// Each save reads what the step before it left, although the rank has enqueued the next step's updates by then.
TEST(BackgroundReads, SeeTheValuesBetweenTwoUpdates) {
  for (const testing::StreamOrder order : testing::kStreamOrders) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(fmt::format("order {}, seed {}", static_cast<int>(order), seed));
      const SimulatedScope scope(testing::with(order, seed));
      testing::Rank rank;
      CudaBackgroundReads reads(rank.a, kUnits);
      std::vector<Buffer> values, read;
      for (std::size_t u = 0; u < kUnits; ++u) {
        values.push_back(allocate_cuda(0, kBytes, "values"));
        read.push_back(reads.allocate(kBytes, "staging"));
      }
      for (int step = 1; step <= 4; ++step) {
        for (std::size_t u = 0; u < kUnits; ++u) fill(rank.a, values[u], 10 * step + static_cast<int>(u));
        reads.begin();
        std::thread writer([&] {
          for (std::size_t u = 0; u < kUnits; ++u) {
            reads.read(read[u].data(), view(values[u]));
            reads.mark(u);
          }
        });
        writer.join();
        {
          const NoAllocationScope step_scope("a step");
          for (std::size_t u = 0; u < kUnits; ++u) {
            reads.hold(u);
            fill(rank.a, values[u], 255);
          }
        }
        std::thread waiter([&] {
          reads.wait(0);
          EXPECT_TRUE(holds(read[0], 10 * step));
          reads.wait_all();
        });
        waiter.join();
        for (std::size_t u = 0; u < kUnits; ++u) EXPECT_TRUE(holds(read[u], 10 * step + static_cast<int>(u))) << "unit " << u;
      }
      rank.a.synchronize();
    }
  }
}

TEST(BackgroundReads, MemoryIsPageLockedAndGoesWithItsOwner) {
  const SimulatedScope scope;
  testing::Rank rank;
  CudaBackgroundReads reads(rank.a, 1);
  const Buffer staging = reads.allocate(kBytes, "staging");
  EXPECT_EQ(staging.where(), MemoryKind::kPinned);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(staging.data()) % 4096, 0u);
  simulated::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
  EXPECT_EQ(staging.num_bytes(), kBytes);
  EXPECT_TRUE(holds(staging, 0));
  EXPECT_EQ(reads.allocate(0, "nothing").data(), nullptr);
  EXPECT_TRUE(contains(error_of<ConfigError>([&] { reads.allocate(3'000'000, "staging"); }),
                       "staging needs 3.0 MB of page-locked host memory"));
}

// It ends before the memory that its reads go to is given back; nobody waited for them.
TEST(BackgroundReads, EndWithReadsUnderWay) {
  const SimulatedScope scope(testing::with(testing::StreamOrder::kTargetFirst));
  testing::Rank rank;
  const Buffer values = allocate_cuda(0, kBytes, "values");
  Buffer staging;
  {
    CudaBackgroundReads reads(rank.a, 1);
    staging = reads.allocate(kBytes, "staging");
    fill(rank.a, values, 7);
    reads.begin();
    reads.read(staging.data(), view(values));
  }
  EXPECT_TRUE(holds(staging, 7));
}

// A call that fails says what was being done, and leaves nothing behind.
TEST(BackgroundReads, FailuresSayWhatWasDone) {
  const SimulatedScope scope;
  testing::Rank rank;
  const Buffer values = allocate_cuda(0, kBytes, "values");
  for (const char* call : {"cudaStreamCreateWithPriority", "cudaEventCreateWithFlags"}) {
    simulated::fail_next(call, cudaErrorMemoryAllocation);
    EXPECT_TRUE(contains(error_of<ConfigError>([&] { CudaBackgroundReads(rank.a, 2); }), "cudaErrorMemoryAllocation")) << call;
  }
  simulated::fail_next("cudaEventCreateWithFlags", cudaErrorMemoryAllocation, 3);  // the second mark's
  EXPECT_TRUE(contains(error_of<ConfigError>([&] { CudaBackgroundReads(rank.a, 2); }), "making an event"));
  CudaBackgroundReads reads(rank.a, 1);
  const Buffer staging = reads.allocate(kBytes, "staging");
  simulated::fail_next("cudaMemcpyAsync", cudaErrorInvalidValue);
  const std::string error = error_of<InternalError>([&] { reads.read(staging.data(), view(values)); });
  EXPECT_TRUE(contains(error, "copying values for a checkpoint from the device: cudaErrorInvalidValue")) << error;
  EXPECT_TRUE(contains(error_of<InternalError>([&] {
                         reads.read(staging.data(), {staging.data(), DType::kU8, {8}});
                       }),
                       "host memory"));
  reads.read(staging.data(), view(values));
  reads.wait_all();
  EXPECT_TRUE(holds(staging, 0));
}

}  // namespace
}  // namespace trident
