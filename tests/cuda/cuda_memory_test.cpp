// Memory of the device and pinned memory, and what errors of CUDA become.
#include "device/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/no_allocation.h"
#include "tests/cuda/simulated_scope.h"
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
  EXPECT_EQ(error_of<ConfigError>([] { allocate_cuda(0, 2'000'000, "activations"); }),
            "memory: activations needs 2.0 MB of CUDA device 0 (NVIDIA H100 80GB HBM3), which has 0.2 of 1.0 MB free; make "
            "batch.micro or batch.sequence "
            "smaller, set recompute.policy = full or recompute.head_chunk, shard more with parallel.zero, use more tensor or "
            "pipeline ranks, or end other "
            "processes on the GPU");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the runtime still has the error that was thrown";
  allocate_cuda(0, 200'000, "what fits");
  simulated::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
  EXPECT_EQ(error_of<ConfigError>([] { allocate_pinned(3'000'000, "staging"); }),
            "memory: staging needs 3.0 MB of page-locked host memory and the system refused them; free memory on this machine or "
            "start fewer ranks on it");
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

TEST(CudaError, NoDriver) {
  simulated::Settings settings;
  settings.driver = simulated::Driver::kNone;
  const SimulatedScope scope(settings);
  EXPECT_EQ(error_of<ConfigError>([] { use_cuda_device(0); }),
            "CUDA device 0: cudaErrorInsufficientDriver (CUDA driver version is insufficient for CUDA runtime version); this "
            "machine has no NVIDIA driver; "
            "install one or set device = cpu");
}

TEST(CudaError, DriverTooOld) {
  simulated::Settings settings;
  settings.driver = simulated::Driver::kTooOld;
  const SimulatedScope scope(settings);
  EXPECT_EQ(error_of<ConfigError>([] { use_cuda_device(0); }),
            fmt::format("CUDA device 0: cudaErrorInsufficientDriver (CUDA driver version is insufficient for CUDA runtime "
                        "version); the NVIDIA driver is for "
                        "CUDA 12.4 and this binary needs {}; update the driver or set device = cpu",
                        cuda_version_text(CUDART_VERSION)));
}

TEST(CudaError, FewerDevicesThanAskedFor) {
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
  EXPECT_EQ(setup(cudaErrorDevicesUnavailable),
            "test: cudaErrorDevicesUnavailable (CUDA-capable device(s) is/are busy or unavailable) on CUDA device 0; another "
            "process holds the GPU for itself; "
            "wait for it, choose another GPU, or set its compute mode to Default");
  expect_parts(setup(cudaErrorMemoryAllocation), {"batch.micro"});
  expect_parts(setup(cudaErrorNoKernelImageForDevice), {"CMAKE_CUDA_ARCHITECTURES"});
  expect_parts(setup(cudaErrorSystemNotReady), {"nvidia-smi"});
  expect_parts(hardware(cudaErrorECCUncorrectable), {"Xid"});
  expect_parts(hardware(cudaErrorNvlinkUncorrectable), {"checkpoint"});
  expect_parts(program(cudaErrorIllegalAddress), {"a kernel started earlier failed"});
  expect_parts(program(cudaErrorInvalidValue), {"please report it"});
}

TEST(CudaError, VersionsInWords) {
  EXPECT_EQ(cuda_version_text(13000), "CUDA 13.0");
  EXPECT_EQ(cuda_version_text(12090), "CUDA 12.9");
}

}  // namespace
}  // namespace trident
