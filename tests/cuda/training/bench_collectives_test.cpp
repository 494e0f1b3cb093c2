// What trident bench finds out about collectives between simulated GPUs, and what it says where there is nothing to find out.
#include "planner/bench/bench_collectives.h"

#include <gmock/gmock.h>
#include <nccl.h>

#include "cuda/simulated/nccl.h"
#include "cuda/simulated/runtime.h"

namespace trident {
namespace {

constexpr double kMegabytes = 0.05;

class BenchCollectives : public ::testing::Test {
 protected:
  ~BenchCollectives() override {
    simulated::reset();
    EXPECT_EQ(simulated::census().allocations, 0u);
    EXPECT_EQ(simulated::nccl_communicators(), 0);
    simulated::reset_nccl();
  }
  void gpus(int devices) {
    simulated::Settings settings;
    settings.host_guard = simulated::HostGuard::kOff;
    settings.devices = devices;
    simulated::configure(settings);
  }
  static void expect_rates(const CollectiveRates& way, int ranks) {
    EXPECT_EQ(way.skipped, "");
    EXPECT_EQ(way.ranks, ranks);
    EXPECT_GT(way.floor_rate, 0);
    ASSERT_EQ(way.rates.size(), 3u);
    for (const CollectiveRate& rate : way.rates) {
      EXPECT_GT(rate.seconds, 0) << rate.operation;
      EXPECT_GT(way.floor_seconds(rate), 0) << rate.operation;
    }
  }
  std::unique_ptr<CudaBackend> cuda_ = make_cuda_backend();
  CollectiveOptions small_ = {.cuda = {}, .threads_per_rank = 1, .megabytes = kMegabytes};
};

TEST_F(BenchCollectives, NcclTakesEveryGpu) {
  gpus(3);
  small_.cuda.nccl_max_ctas = {.tensor = 3, .data = 5, .pipeline = 4};
  const CollectiveRates nccl = nccl_rates_between_gpus(*cuda_, small_);
  EXPECT_EQ(nccl.way, "threads by NCCL");
  expect_rates(nccl, 3);
  EXPECT_EQ(nccl.floor_of, "messages of all ranks to the next at once");
  EXPECT_NEAR(nccl.rates[0].moved / nccl.rates[0].bytes, 4.0 / 3, 1e-9)
      << "what reaches a rank, of sums and of what they are made of";
  EXPECT_NEAR(nccl.rates[2].moved / nccl.rates[2].bytes, 2.0 / 3, 1e-9);
  std::set<int> used;
  for (const simulated::NcclJoined& one : simulated::nccl_joined()) {
    used.insert(one.device);
    EXPECT_EQ(one.max_ctas, 5) << "the limit of the axis that the ranks lie along";
  }
  EXPECT_EQ(used, (std::set{0, 1, 2}));
}

TEST_F(BenchCollectives, OneGpuExchangesWithItself) {
  gpus(1);
  const CollectiveRates nccl = nccl_rates_between_gpus(*cuda_, small_);
  expect_rates(nccl, 1);
  EXPECT_EQ(nccl.floor_of, "copies of all ranks at once, read and written");
  EXPECT_EQ(simulated::nccl_joined().size(), 1u) << "the library was called";
}

TEST_F(BenchCollectives, ThreadsOnOneGpu) {
  gpus(1);
  const DeviceChoice choice =
      choose_device(AskedDevice::kCuda, *cuda_, look_for_gpus(AskedDevice::kCuda, *cuda_, thread_ranks(2)));
  const CollectiveRates threads = rates_between_threads(choice, *cuda_, DeviceTransport::kThread, 2, small_);
  EXPECT_EQ(threads.way, "threads in each other's device memory");
  expect_rates(threads, 2);
  EXPECT_EQ(threads.rates[0].moved, 5 * threads.rates[0].bytes);
}

TEST_F(BenchCollectives, WhereNcclCannotItSaysWhy) {
  gpus(2);
  simulated::fail_next("ncclCommInitRankConfig", ncclSystemError);
  EXPECT_THAT(nccl_rates_between_gpus(*cuda_, small_).skipped,
              ::testing::HasSubstr("joining among ranks 0, 1 failed in NCCL: unhandled system error"));
  gpus(0);
  EXPECT_THAT(nccl_rates_between_gpus(*make_cuda_backend(), small_).skipped,
              ::testing::HasSubstr("no GPU is visible to this process"));
}

}  // namespace
}  // namespace trident
