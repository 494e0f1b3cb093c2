// The simulated CUDA runtime itself: what a real one refuses it refuses, and what a real one may reorder it reorders.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "tests/cuda/simulated_scope.h"

namespace trident {
namespace {

using simulated::StreamOrder;

// A stream, destroyed with the test.
struct OwnStream {
  OwnStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess); }
  ~OwnStream() { cudaStreamDestroy(handle); }
  cudaStream_t handle = nullptr;
};

struct OwnEvent {
  explicit OwnEvent(unsigned flags = cudaEventDisableTiming) { EXPECT_EQ(cudaEventCreateWithFlags(&handle, flags), cudaSuccess); }
  ~OwnEvent() { cudaEventDestroy(handle); }
  cudaEvent_t handle = nullptr;
};

struct DeviceInts {
  explicit DeviceInts(std::size_t count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(int)), cudaSuccess);
  }
  ~DeviceInts() { cudaFree(data); }
  int* data = nullptr;
};

simulated::Settings seeded(std::uint64_t seed, StreamOrder order = StreamOrder::kRandom) {
  simulated::Settings settings;
  settings.seed = seed;
  settings.stream_order = order;
  return settings;
}

TEST(SimulatedRuntime, DescribesItsDevices) {
  simulated::Settings settings;
  settings.devices = 2;
  settings.used_bytes = 1 << 30;
  const SimulatedScope scope(settings);
  int count = 0, version = 0, multiprocessors = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_EQ(properties.major, 9);
  EXPECT_STREQ(properties.name, "NVIDIA H100 80GB HBM3");
  ASSERT_EQ(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(multiprocessors, 132);
  EXPECT_EQ(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 2), cudaErrorInvalidDevice);
  ASSERT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, std::size_t{79} << 30);
  EXPECT_EQ(total - free, std::size_t{1} << 30);
  char bus[32];
  ASSERT_EQ(cudaDeviceGetPCIBusId(bus, sizeof bus, 1), cudaSuccess);
  EXPECT_STREQ(bus, "00000000:1B:00.0");
}

TEST(SimulatedRuntime, KeepsTheLastErrorPerThread) {
  const SimulatedScope scope;
  EXPECT_EQ(cudaSetDevice(7), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaGetLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  EXPECT_STREQ(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST(SimulatedRuntime, InjectedFailuresComeOnceAndWhenTheyAreDue) {
  const SimulatedScope scope;
  OwnStream stream;
  simulated::fail_next("cudaStreamQuery", cudaErrorUnknown, 1);
  EXPECT_EQ(cudaStreamQuery(stream.handle), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream.handle), cudaErrorUnknown);
  EXPECT_EQ(cudaStreamQuery(stream.handle), cudaSuccess);
  EXPECT_EQ(simulated::injected_failure("ncclAllReduce"), std::nullopt);
  simulated::fail_next("ncclAllReduce", 3);
  EXPECT_EQ(simulated::injected_failure("ncclAllReduce"), 3);
}

TEST(SimulatedRuntime, MemoryIsOfADeviceAndStartsAsGarbage) {
  const SimulatedScope scope;
  int* data = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), 40), cudaSuccess);
  EXPECT_TRUE(simulated::is_device_memory(data, 40));
  EXPECT_TRUE(simulated::is_device_memory(data + 5, 20));
  EXPECT_FALSE(simulated::is_device_memory(data, 41));
  int host[10] = {};
  EXPECT_FALSE(simulated::is_device_memory(host, 4));
  ASSERT_EQ(cudaMemcpy(host, data, 40, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(host[3], -1);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, data + 1), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, host), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_FALSE(simulated::is_device_memory(data, 1));
  EXPECT_EQ(cudaMemset(data, 0, 4), cudaErrorInvalidValue) << "freed memory was taken";
}

TEST(SimulatedRuntime, FreeingWaitsForQueuedWork) {
  const SimulatedScope scope;
  OwnStream stream;
  int* data = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), 4), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(data, 0, 4, stream.handle), cudaSuccess);
  EXPECT_EQ(simulated::census().queued, 1u);
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(simulated::census().queued, 0u);
}

TEST(SimulatedRuntime, CopiesBetweenPlacesAreChecked) {
  const SimulatedScope scope;
  DeviceInts device(4);
  int host[4] = {};
  EXPECT_EQ(cudaMemcpy(device.data, host, 16, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.data, host, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.data + 1, host, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue) << "past the end";
  EXPECT_EQ(cudaMemset(host, 0, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.data, host, 0, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device.data, host, 16, cudaMemcpyDefault), cudaSuccess);
}

// As the real library: what lies in pageable memory is read at the call, what lies in pinned memory when its turn comes.
TEST(SimulatedRuntime, PinnedMemoryIsReadLate) {
  const SimulatedScope scope;
  OwnStream stream;
  DeviceInts device(2);
  int pageable = 1, *pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 4, cudaHostAllocPortable), cudaSuccess);
  *pinned = 1;
  ASSERT_EQ(cudaMemcpyAsync(device.data, &pageable, 4, cudaMemcpyHostToDevice, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device.data + 1, pinned, 4, cudaMemcpyHostToDevice, stream.handle), cudaSuccess);
  pageable = *pinned = 2;
  int back[2];
  ASSERT_EQ(cudaMemcpyAsync(back, device.data, 8, cudaMemcpyDeviceToHost, stream.handle), cudaSuccess);
  EXPECT_EQ(back[0], 1);
  EXPECT_EQ(back[1], 2);
  ASSERT_EQ(cudaMemcpyAsync(pinned, device.data, 4, cudaMemcpyDeviceToHost, stream.handle), cudaSuccess);
  EXPECT_EQ(*pinned, 2) << "written before its turn";
  ASSERT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
  EXPECT_EQ(*pinned, 1);
  ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST(SimulatedRuntime, RegisteredMemoryIsPinned) {
  const SimulatedScope scope;
  OwnStream stream;
  DeviceInts device(1);
  std::vector<int> host(100, 1);
  ASSERT_EQ(cudaHostRegister(host.data(), 400, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(host.data() + 4, 4, cudaHostRegisterPortable), cudaErrorHostMemoryAlreadyRegistered);
  ASSERT_EQ(cudaMemcpyAsync(device.data, host.data(), 4, cudaMemcpyHostToDevice, stream.handle), cudaSuccess);
  EXPECT_EQ(simulated::census().queued, 1u);
  ASSERT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  EXPECT_EQ(simulated::census().queued, 0u);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
}

TEST(SimulatedRuntime, WorkRunsLateAndUnorderedStreamsInEveryOrder) {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const SimulatedScope scope(seeded(seed));
    std::vector<int> happened;
    OwnStream streams[3];
    for (int i = 0; i < 3; ++i) simulated::enqueue(streams[i].handle, "work", [&happened, i] { happened.push_back(i); });
    EXPECT_TRUE(happened.empty());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    orders.insert(happened);
  }
  EXPECT_EQ(orders.size(), 6u);
}

TEST(SimulatedRuntime, OneSeedOneOrder) {
  const auto run = [] {
    const SimulatedScope scope(seeded(5));
    std::vector<int> happened;
    OwnStream streams[3];
    for (int i = 0; i < 30; ++i) simulated::enqueue(streams[i % 3].handle, "work", [&happened, i] { happened.push_back(i); });
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return happened;
  };
  EXPECT_EQ(run(), run());
}

TEST(SimulatedRuntime, TheAwaitedStreamFirstOrLast) {
  for (const StreamOrder order : {StreamOrder::kTargetFirst, StreamOrder::kOthersFirst}) {
    const SimulatedScope scope(seeded(1, order));
    std::vector<int> happened;
    OwnStream a, b;
    for (int i = 0; i < 3; ++i) {
      simulated::enqueue(a.handle, "a", [&happened] { happened.push_back(0); });
      simulated::enqueue(b.handle, "b", [&happened] { happened.push_back(1); });
    }
    ASSERT_EQ(cudaStreamSynchronize(b.handle), cudaSuccess);
    EXPECT_EQ(happened, order == StreamOrder::kTargetFirst ? (std::vector<int>{1, 1, 1}) : (std::vector<int>{0, 0, 0, 1, 1, 1}));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

TEST(SimulatedRuntime, EventsOrderStreamsAsOfTheCall) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const SimulatedScope scope(seeded(seed));
    std::vector<int> happened;
    OwnStream a, b;
    OwnEvent event;
    ASSERT_EQ(cudaStreamWaitEvent(b.handle, event.handle, 0), cudaSuccess) << "an event without a record is no wait";
    EXPECT_EQ(cudaEventQuery(event.handle), cudaSuccess);
    simulated::enqueue(a.handle, "1", [&] { happened.push_back(1); });
    ASSERT_EQ(cudaEventRecord(event.handle, a.handle), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(b.handle, event.handle, 0), cudaSuccess);
    bool late = false;
    simulated::enqueue(
        a.handle, "never before b", [&] { return late; }, [&] { happened.push_back(3); });
    ASSERT_EQ(cudaEventRecord(event.handle, a.handle), cudaSuccess);  // b waits for the first record
    simulated::enqueue(b.handle, "2", [&] {
      happened.push_back(2);
      late = true;
    });
    ASSERT_EQ(cudaEventSynchronize(event.handle), cudaSuccess);
    EXPECT_EQ(happened, (std::vector<int>{1, 2, 3}));
    ASSERT_EQ(cudaStreamSynchronize(b.handle), cudaSuccess);
  }
}

TEST(SimulatedRuntime, AskingMakesSomeProgressAndThenAll) {
  const SimulatedScope scope;
  OwnStream stream;
  int done = 0, asked = 0;
  for (int i = 0; i < 100; ++i) simulated::enqueue(stream.handle, "work", [&] { ++done; });
  while (cudaStreamQuery(stream.handle) == cudaErrorNotReady) ++asked;
  EXPECT_EQ(done, 100);
  EXPECT_GT(asked, 5);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "not ready is no error";
}

TEST(SimulatedRuntime, ElapsedTimeIsMeasuredBetweenEvents) {
  const SimulatedScope scope;
  OwnStream stream;
  OwnEvent start(cudaEventDefault), end(cudaEventDefault), untimed;
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start.handle, end.handle), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(start.handle, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end.handle, stream.handle), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start.handle, end.handle), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(end.handle), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, start.handle, end.handle), cudaSuccess);
  EXPECT_GE(milliseconds, 0.0f);
  ASSERT_EQ(cudaEventRecord(untimed.handle, stream.handle), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start.handle, untimed.handle), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
}

TEST(SimulatedRuntime, HandlesThatAreNoneAreRefused) {
  simulated::Settings settings;
  settings.devices = 2;
  const SimulatedScope scope(settings);
  OwnStream stream;
  OwnEvent event;
  auto* const no_stream = reinterpret_cast<cudaStream_t>(&settings);
  EXPECT_EQ(cudaStreamSynchronize(no_stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event.handle, no_stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(stream.handle, reinterpret_cast<cudaEvent_t>(&settings), 0), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(nullptr), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  OwnStream other;
  EXPECT_EQ(cudaEventRecord(event.handle, other.handle), cudaErrorInvalidResourceHandle) << "an event of another device";
  EXPECT_EQ(simulated::stream_device(other.handle), 1);
  EXPECT_EQ(simulated::stream_device(no_stream), std::nullopt);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(SimulatedRuntime, AStreamIsDestroyedAfterItsWork) {
  const SimulatedScope scope;
  int done = 0;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  simulated::enqueue(stream, "work", [&] { ++done; });
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(done, 0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(done, 1);
}

TEST(SimulatedRuntime, TheDefaultStreamWaitsForBlockingStreamsOnly) {
  const SimulatedScope scope;
  OwnStream free;
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  DeviceInts device(1);
  std::vector<int> happened;
  bool never = false;
  simulated::enqueue(
      free.handle, "free", [&] { return never; }, [] {});
  simulated::enqueue(blocking, "blocking", [&] { happened.push_back(1); });
  ASSERT_EQ(cudaMemset(device.data, 0, 4), cudaSuccess);
  EXPECT_EQ(happened, std::vector<int>{1});
  never = true;
  ASSERT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(SimulatedRuntime, AFailedDeviceStaysFailed) {
  simulated::Settings settings;
  settings.devices = 2;
  const SimulatedScope scope(settings);
  OwnStream stream;
  int done = 0;
  simulated::fail_next("bad", cudaErrorLaunchFailure);
  simulated::enqueue(stream.handle, "bad", [&] { ++done; });
  simulated::enqueue(stream.handle, "later", [&] { ++done; });
  EXPECT_EQ(cudaStreamSynchronize(stream.handle), cudaErrorLaunchFailure);
  EXPECT_EQ(done, 0);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 4), cudaErrorLaunchFailure);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&data, 4), cudaSuccess) << "the other device works";
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  simulated::recover();
}

// Work of one thread that another thread must make possible.
TEST(SimulatedRuntime, AThreadSleepsUntilAnotherEnqueues) {
  const SimulatedScope scope;
  OwnStream a, b;
  std::atomic<bool> met{false};
  bool peer = false;
  simulated::enqueue(
      a.handle, "first half", [&] { return peer; }, [&] { met = true; });
  std::thread waiting([&] { EXPECT_EQ(cudaStreamSynchronize(a.handle), cudaSuccess); });
  simulated::enqueue(b.handle, "second half", [&] { peer = true; });
  waiting.join();
  EXPECT_TRUE(met);
  EXPECT_EQ(cudaStreamSynchronize(b.handle), cudaSuccess);
}

TEST(SimulatedRuntimeDeathTest, WorkOnNoStream) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  int dummy = 0;
  EXPECT_DEATH(simulated::enqueue(reinterpret_cast<cudaStream_t>(&dummy), "lost", [] {}), "lost enqueued on no stream");
}

}  // namespace
}  // namespace trident
