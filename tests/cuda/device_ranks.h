// Thread ranks with CUDA devices: each with a compute stream, two queue streams and a communicator of device memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_stream.h"
#include "parallel/cuda/device_communicators.h"
#include "parallel/shared_memory/thread_world.h"
#include "tests/parallel/rank_context.h"

namespace trident {

inline void PrintTo(DeviceTransport transport, std::ostream* out) { *out << to_string(transport); }

}  // namespace trident

namespace trident::conformance {

// Values in the memory of a GPU, cut from a few allocations: tests make thousands. What was given back is kept for values of its
// size.
class DeviceValues final : public ValuesMemory {
 public:
  explicit DeviceValues(int device) : device_(device) { values_memory = this; }
  ~DeviceValues() override { values_memory = nullptr; }
  void* allocate(std::size_t bytes) override;
  void release(void* memory) override;
  MemoryKind where() const override { return MemoryKind::kDevice; }
  void write(void* to, const void* from, std::size_t bytes) override;
  void read(void* to, const void* from, std::size_t bytes) override;

 private:
  int device_;
  std::vector<Buffer> slabs_;
  std::int64_t used_ = 0;  // bytes of the last
  std::map<std::int64_t, std::vector<std::byte*>> kept_;
  std::map<std::byte*, std::int64_t> bytes_;
};

// "Thread", for names of tests.
std::string transport_name(const ::testing::TestParamInfo<DeviceTransport>& info);

struct DeviceRanks {
  DeviceTransport transport = DeviceTransport::kThread;
  int ranks = 2;
  int gpus = 1;  // rank r is on GPU r % GPUs
  double timeout_seconds = 60;
  DeviceCommunicatorOptions options{};
};

struct DeviceRank {
  DeviceRank(ThreadWorld& world, int rank, const DeviceRanks& setup);
  RankContext context() { return {*communicator, compute, {&queue0, &queue1}}; }

  int device;
  DeviceValues values;
  Progress progress;
  CudaStream compute, queue0, queue1;
  std::unique_ptr<Communicator> communicator;  // after the streams: it is destroyed first
};

void run_on_devices(const DeviceRanks& setup, const std::function<void(RankContext&)>& body);

// As run_on_devices() for ranks that are expected to fail.
Failures run_failing(const DeviceRanks& setup, const std::function<void(RankContext&)>& body);

}  // namespace trident::conformance
