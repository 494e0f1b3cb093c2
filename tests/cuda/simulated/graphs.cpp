// Streams that capture, and graphs. What is captured is kept as it would have been enqueued, arguments included; a launch enqueues
// it again. Not modelled: captures of several streams, and work that waits for something.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/cuda/simulated/machine.h"

struct CUgraph_st {
  int device = 0;
  std::vector<trident::simulated::Item> items;
};

struct CUgraphExec_st {
  int device = 0;
  std::vector<trident::simulated::Item> items;
};

namespace trident::simulated {

namespace {

// A thread may not make these calls of the real library while it captures: they could wait for
// the captured work, or change what it relies on.
constexpr std::array<std::string_view, 16> kUnsafe = {
    "cudaMalloc",      "cudaFree",   "cudaHostAlloc",         "cudaFreeHost",          "cudaHostRegister", "cudaHostUnregister",
    "cudaMemcpy",      "cudaMemset", "cudaMemcpy2D",          "cudaDeviceSynchronize", "cudaEventQuery",   "cudaEventSynchronize",
    "cudaStreamQuery", "cudaStreamSynchronize", "cudaDeviceEnablePeerAccess", "cudaMemGetInfo"};

CUstream_st* captured_by_this_thread() {
  for (const auto& stream : Machine::instance().streams)
    if (stream->capture && stream->capture->thread == std::this_thread::get_id() &&
        stream->capture->mode != cudaStreamCaptureModeRelaxed)
      return stream.get();
  return nullptr;
}

}  // namespace

cudaError_t spoil(CUstream_st& stream, cudaError_t error) {
  stream.capture->spoiled = true;
  return error;
}

cudaError_t refuse_while_capturing(std::string_view call) {
  if (std::ranges::find(kUnsafe, call) == kUnsafe.end()) return cudaSuccess;
  CUstream_st* const stream = captured_by_this_thread();
  return stream == nullptr ? cudaSuccess : spoil(*stream, cudaErrorStreamCaptureUnsupported);
}

void keep_in_capture(CUstream_st& stream, Item item) {
  if (item.ready) {
    std::fprintf(stderr, "simulated CUDA: %s, which waits for something, is captured\n", item.what.c_str());
    std::abort();
  }
  stream.capture->items.push_back(std::move(item));
}

}  // namespace trident::simulated

using namespace trident::simulated;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  trident::check_allocation_allowed(1, "cudaStreamBeginCapture");
  return api_call("cudaStreamBeginCapture", [&] {
    CUstream_st* const stream = Machine::instance().find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->id == 0) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    stream->capture = std::make_shared<Capture>();
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  trident::check_allocation_allowed(1, "cudaStreamEndCapture");
  return api_call("cudaStreamEndCapture", [&] {
    *graph = nullptr;
    CUstream_st* const stream = Machine::instance().find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (!stream->capture) return cudaErrorIllegalState;
    if (stream->capture->mode != cudaStreamCaptureModeRelaxed && stream->capture->thread != std::this_thread::get_id())
      return cudaErrorStreamCaptureWrongThread;
    const std::shared_ptr<Capture> capture = std::exchange(stream->capture, nullptr);
    if (capture->spoiled) return cudaErrorStreamCaptureInvalidated;
    Machine& machine = Machine::instance();
    auto made = std::make_unique<CUgraph_st>();
    made->device = stream->device;
    made->items = std::move(capture->items);
    *graph = made.get();
    machine.graphs.emplace(*graph, std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return api_call("cudaStreamIsCapturing", [&] {
    const CUstream_st* const stream = Machine::instance().find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *status = !stream->capture          ? cudaStreamCaptureStatusNone
              : stream->capture->spoiled ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return plain_call("cudaGraphDestroy",
                    [&] { return Machine::instance().graphs.erase(graph) == 1 ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  trident::check_allocation_allowed(1, "cudaGraphInstantiate");
  return api_call("cudaGraphInstantiate", [&] {
    Machine& machine = Machine::instance();
    const auto found = machine.graphs.find(graph);
    if (found == machine.graphs.end()) return cudaErrorInvalidValue;
    auto made = std::make_unique<CUgraphExec_st>();
    made->device = found->second->device;
    made->items = found->second->items;
    *exec = made.get();
    machine.executables.emplace(*exec, std::move(made));
    ++machine.graph_uses.instantiated;
    return cudaSuccess;
  });
}

// Its launches that are queued go on.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return plain_call("cudaGraphExecDestroy",
                    [&] { return Machine::instance().executables.erase(exec) == 1 ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  trident::check_allocation_allowed(1, "cudaGraphLaunch");
  return api_call("cudaGraphLaunch", [&] {
    Machine& machine = Machine::instance();
    const auto found = machine.executables.find(exec);
    if (found == machine.executables.end()) return cudaErrorInvalidValue;
    CUstream_st* const stream = machine.find(handle);
    if (stream == nullptr || stream->device != found->second->device) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return spoil(*stream, cudaErrorStreamCaptureUnsupported);
    const std::vector<Item> items = found->second->items;  // work that runs at once may end the graph
    for (const Item& item : items) machine.push(*stream, item);
    ++machine.graph_uses.launched;
    machine.graph_uses.operations += items.size();
    return cudaSuccess;
  });
}
