// Reads beside the rank's work on the simulated CUDA, whose streams run late and in every order: neither before the values are
// there nor after they change.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "core/check.h"
#include "device/cuda/cuda_background_reads.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "device/no_allocation.h"
#include "tests/cuda/stream_rank.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

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

// What fails says what was being done, and leaves nothing behind.
TEST(BackgroundReads, Failures) {
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
