// The simulation's captures: what the real library refuses, and that a graph keeps what it was captured with.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated_scope.h"

namespace trident {
namespace {

class SimulatedGraphs : public ::testing::Test {
 protected:
  void begin() { ASSERT_EQ(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess); }
  // The graph of what was captured, as its error.
  cudaError_t end(cudaGraph_t* graph = nullptr) {
    cudaGraph_t made = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream_.get(), &made);
    if (graph != nullptr) {
      *graph = made;
    } else if (made != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(made), cudaSuccess);
    }
    return status;
  }
  void fill(int value) { ASSERT_EQ(cudaMemsetAsync(x_.view().data(), value, 4, stream_.get()), cudaSuccess); }
  float first() {
    stream_.synchronize();
    return static_cast<float>(x_.download().at(0));
  }

  const SimulatedScope scope_{{.stream_order = simulated::StreamOrder::kTargetFirst}};
  TestStream stream_, other_;
  DeviceTensor x_{TestTensor(DType::kF32, {8}).fill(5)}, y_{TestTensor(DType::kF32, {8}).fill(7)};
};

TEST_F(SimulatedGraphs, RunWhenTheyAreLaunchedWithTheArgumentsOfTheirCapture) {
  begin();
  void* to = x_.view().data();
  ASSERT_EQ(cudaMemcpyAsync(to, y_.view().data(), 4, cudaMemcpyDeviceToDevice, stream_.get()), cudaSuccess);
  to = nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ASSERT_EQ(cudaStreamIsCapturing(stream_.get(), &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(end(&graph), cudaSuccess);
  ASSERT_EQ(cudaStreamIsCapturing(stream_.get(), &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(first(), 5) << "nothing ran";
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  for (int i = 0; i < 2; ++i) {
    fill(0);
    ASSERT_EQ(cudaGraphLaunch(exec, stream_.get()), cudaSuccess);
    EXPECT_EQ(first(), 7);
  }
  EXPECT_EQ(simulated::graph_uses().launched, 2u);
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, stream_.get()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  EXPECT_EQ(simulated::census().graphs, 0u);
}

TEST_F(SimulatedGraphs, CallsThatCouldWaitSpoilACapture) {
  float number = 0;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, other_.get()), cudaSuccess);
  void* memory = nullptr;
  const std::vector<std::pair<const char*, std::function<cudaError_t()>>> calls = {
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(stream_.get()); }},
      {"cudaStreamQuery", [&] { return cudaStreamQuery(stream_.get()); }},
      {"cudaStreamSynchronize of another", [&] { return cudaStreamSynchronize(other_.get()); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(event); }},
      {"cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); }},
      {"cudaMalloc", [&] { return cudaMalloc(&memory, 64); }},
      {"cudaMemcpy", [&] { return cudaMemcpy(&number, x_.view().data(), 4, cudaMemcpyDeviceToHost); }},
      {"pageable memory", [&] { return cudaMemcpyAsync(x_.view().data(), &number, 4, cudaMemcpyHostToDevice, stream_.get()); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    begin();
    fill(0);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(call(), std::string_view(name).ends_with("Query") ? call() : cudaSuccess) << "without a capture";
  }
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(first(), 5) << "nothing that was captured ran";
}

TEST_F(SimulatedGraphs, EventsStayOnTheirSideOfACapture) {
  cudaEvent_t outside = nullptr, inside = nullptr;
  for (cudaEvent_t* event : {&outside, &inside}) ASSERT_EQ(cudaEventCreateWithFlags(event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(outside, other_.get()), cudaSuccess);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream_.get(), outside, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  ASSERT_EQ(cudaEventRecord(inside, stream_.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_.get(), inside, 0), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other_.get(), inside, 0), cudaErrorStreamCaptureUnsupported);
  ASSERT_EQ(cudaEventRecord(inside, stream_.get()), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(inside), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (cudaEvent_t event : {outside, inside}) ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(SimulatedGraphs, CapturesBeginAndEndInPairsOnOneThread) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported)
      << "the legacy stream";
  EXPECT_EQ(end(), cudaErrorIllegalState);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
  std::thread([&] {
    EXPECT_EQ(end(), cudaErrorStreamCaptureWrongThread);
    EXPECT_EQ(cudaStreamSynchronize(other_.get()), cudaSuccess) << "another thread may wait for another stream";
  }).join();
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(SimulatedGraphs, WorkThatFailsDoesSoWhenItIsLaunched) {
  begin();
  fill(0);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(end(&graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  simulated::fail_next("cudaMemsetAsync", cudaErrorIllegalAddress);
  ASSERT_EQ(cudaGraphLaunch(exec, stream_.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaErrorIllegalAddress);
  simulated::recover();
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace trident
