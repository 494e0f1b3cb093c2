#include "tests/cuda/device_ranks.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/int_math.h"
#include "device/cuda/cuda_error.h"

namespace trident::conformance {

void* DeviceValues::allocate(std::size_t size) {
  constexpr std::int64_t kSlab = std::int64_t{128} << 10;
  const std::int64_t bytes = round_up(static_cast<std::int64_t>(size), std::int64_t{256});
  std::vector<std::byte*>& kept = kept_[bytes];
  if (!kept.empty()) {
    std::byte* const data = kept.back();
    kept.pop_back();
    return data;
  }
  if (slabs_.empty() || used_ + bytes > slabs_.back().num_bytes()) {
    slabs_.push_back(allocate_cuda(device_, std::max(bytes, kSlab), "values"));
    used_ = 0;
  }
  std::byte* const data = slabs_.back().data() + used_;
  used_ += bytes;
  bytes_.emplace(data, bytes);
  return data;
}

void DeviceValues::release(void* memory) {
  auto* const data = static_cast<std::byte*>(memory);
  kept_[bytes_.at(data)].push_back(data);
}

void DeviceValues::write(void* to, const void* from, std::size_t bytes) {
  use_cuda_device(device_);
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "values");
}

void DeviceValues::read(void* to, const void* from, std::size_t bytes) {
  use_cuda_device(device_);
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "values");
}

DeviceRank::DeviceRank(ThreadWorld& world, int rank, const DeviceRanks& setup)
    : device(rank % setup.gpus),
      values(device),
      progress(world.doorbell(rank)),
      compute(device, "compute", CudaStream::Mode::kImmediate, progress, 0),
      queue0(device, "queue 0", CudaStream::Mode::kQueue, progress, 0),
      queue1(device, "queue 1", CudaStream::Mode::kQueue, progress, 0) {
  communicator =
      make_device_communicator(setup.transport, world.communicator(rank, progress), {device, &progress, {}}, setup.options);
}

void run_on_devices(const DeviceRanks& setup, const std::function<void(RankContext&)>& body) {
  ThreadWorld world(setup.ranks, setup.timeout_seconds);
  run_thread_ranks(world, [&](int rank) {
    DeviceRank self(world, rank, setup);
    RankContext context = self.context();
    body(context);
  });
}

Failures run_failing(const DeviceRanks& setup, const std::function<void(RankContext&)>& body) {
  ThreadWorld world(setup.ranks, setup.timeout_seconds);
  return failures_of(static_cast<std::size_t>(setup.ranks), [&](auto attempt) {
    run_thread_ranks(world, [&](int rank) {
      attempt(rank, [&] {
        DeviceRank self(world, rank, setup);
        RankContext context = self.context();
        body(context);
      });
    });
  });
}

std::string transport_name(const ::testing::TestParamInfo<DeviceTransport>& info) {
  constexpr std::array kNames = {"Thread", "HostStaged", "Nccl"};
  return kNames.at(static_cast<std::size_t>(info.param));
}

}  // namespace trident::conformance
