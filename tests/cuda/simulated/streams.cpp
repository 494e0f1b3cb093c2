// Streams, events, launches.
#include <algorithm>
#include <cstdio>

#include "tests/cuda/simulated/block_run.h"
#include "tests/cuda/simulated/launched_kernels.h"
#include "tests/cuda/simulated/machine.h"
#include "tests/cuda/simulated/shared_memory.h"

namespace trident::simulated {

namespace {

constexpr int kGreatestPriority = -5;

CUevent_st* find_event(cudaEvent_t handle) {
  auto& events = Machine::instance().events;
  const auto found = events.find(handle);
  return found == events.end() ? nullptr : found->second.get();
}

bool launchable(const KernelLaunch& launch) {
  const std::size_t threads = std::size_t{launch.threads.x} * launch.threads.y * launch.threads.z;
  if (threads == 0 || threads > 1024 || launch.threads.z > 64) return false;
  if (launch.blocks.x == 0 || launch.blocks.y == 0 || launch.blocks.z == 0) return false;
  return launch.blocks.x <= 2147483647u && launch.blocks.y <= 65535 && launch.blocks.z <= 65535;
}

cudaError_t check_launch(const KernelLaunch& launch, const CUstream_st* stream) {
  if (stream == nullptr || stream->device != current_device()) return cudaErrorInvalidResourceHandle;
  if (!launchable(launch)) return cudaErrorInvalidConfiguration;
  const auto& limits = Machine::instance().shared_limits;
  const auto asked = limits.find(launch.function);
  const std::size_t limit = asked == limits.end() ? std::size_t{48} << 10 : static_cast<std::size_t>(asked->second);
  return launch.shared_bytes <= limit ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t enqueue_kernel(const KernelLaunch& launch, std::function<void()> body, const void* const* pointers,
                           std::size_t num_pointers) {
  return api_call("cudaLaunchKernelEx", [&] {
    Machine& machine = Machine::instance();
    CUstream_st* const stream = machine.find(launch.stream);
    if (const cudaError_t status = check_launch(launch, stream); status != cudaSuccess) return status;
    std::size_t stray = 0;  // the argument that is memory of the host
    for (std::size_t p = 1; p < num_pointers && stray == 0; ++p)
      if (pointers[p] != nullptr && machine.find(pointers[p], 0) == nullptr) stray = p;
    machine.push(*stream, {launch.name, nullptr, [launch, body = std::move(body), stray, seed = machine.random()] {
                             if (stray != 0) {
                               std::fprintf(stderr, "simulated CUDA: kernel %s: argument %zu points to no memory of the device\n",
                                            launch.name, stray);
                               throw DeviceFailure{cudaErrorIllegalAddress};
                             }
                             run_kernel(launch, body, Machine::instance().settings.fiber_order, seed);
                           }});
    return cudaSuccess;
  });
}

}  // namespace trident::simulated

using namespace trident::simulated;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return api_call("cudaStreamCreateWithPriority", [&] {
    *stream = Machine::instance().create_stream(current_device(), flags, std::clamp(priority, kGreatestPriority, 0));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0); }

namespace {

// A call about one stream.
cudaError_t with_stream(const char* name, cudaStream_t handle, const std::function<cudaError_t(CUstream_st&)>& body) {
  return api_call(name, [&] {
    CUstream_st* const stream = Machine::instance().find(handle);
    return stream == nullptr ? cudaErrorInvalidResourceHandle : body(*stream);
  });
}

cudaError_t failure_of(int device) {
  const auto& failed = Machine::instance().failed_devices;
  const auto found = failed.find(device);
  return found == failed.end() ? cudaSuccess : found->second;
}

}  // namespace

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return with_stream("cudaStreamGetPriority", handle,
                     [&](CUstream_st& stream) { return *priority = stream.priority, cudaSuccess; });
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return with_stream("cudaStreamGetFlags", handle, [&](CUstream_st& stream) { return *flags = stream.flags, cudaSuccess; });
}

// Its work goes on.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  if (handle == nullptr) return cudaErrorInvalidResourceHandle;
  return plain_call("cudaStreamDestroy", [&] {
    Machine& machine = Machine::instance();
    CUstream_st* const stream = machine.find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    stream->destroyed = true;
    std::erase_if(machine.streams, [](const auto& s) { return s->destroyed && s->items.empty(); });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return with_stream("cudaStreamSynchronize", handle, [&](CUstream_st& stream) {
    if (stream.capture) return spoil(stream, cudaErrorStreamCaptureUnsupported);
    const int device = stream.device;
    Machine::instance().wait_for({{&stream, stream.enqueued}});
    return failure_of(device);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return with_stream("cudaStreamQuery", handle, [&](CUstream_st& stream) {
    if (stream.capture) return spoil(stream, cudaErrorStreamCaptureUnsupported);
    Machine::instance().run_some();
    if (const cudaError_t failure = failure_of(stream.device); failure != cudaSuccess) return failure;
    return stream.items.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return with_stream("cudaStreamWaitEvent", handle, [&](CUstream_st& stream) {
    const CUevent_st* const found = find_event(event);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->captured && !stream.capture)
      return cudaErrorStreamCaptureUnsupported;  // the real one lets this stream join the capture
    if (stream.capture) return found->captured ? cudaSuccess : spoil(stream, cudaErrorStreamCaptureIsolation);
    if (found->latest == nullptr || found->latest->done) return cudaSuccess;
    Machine::instance().push(stream, {"cudaStreamWaitEvent", [record = found->latest] { return record->done; }, nullptr});
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return with_stream("cudaLaunchHostFunc", handle, [&](CUstream_st& stream) {
    Machine::instance().push(stream, {"cudaLaunchHostFunc", nullptr, [function, data] { function(data); }});
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api_call("cudaDeviceSynchronize", [] {
    Machine& machine = Machine::instance();
    const int device = current_device();
    for (const auto& stream : machine.streams)  // whoever captures, in whatever mode
      if (stream->device == device && stream->capture) return spoil(*stream, cudaErrorStreamCaptureUnsupported);
    machine.wait_for(machine.points_of_device(device));
    return failure_of(device);
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api_call("cudaEventCreateWithFlags", [&] {
    auto made = std::make_unique<CUevent_st>();
    made->device = current_device();
    made->flags = flags;
    *event = made.get();
    Machine::instance().events.emplace(*event, std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return plain_call("cudaEventDestroy",
                    [&] { return Machine::instance().events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return with_stream("cudaEventRecord", handle, [&](CUstream_st& stream) {
    CUevent_st* const found = find_event(event);
    if (found == nullptr || found->device != stream.device) return cudaErrorInvalidResourceHandle;
    found->captured = stream.capture != nullptr;
    if (found->captured) return cudaSuccess;
    found->latest = std::make_shared<Record>();
    Machine::instance().push(stream, {"cudaEventRecord", nullptr, [record = found->latest] {
                                        record->done = true;
                                        record->seconds = simulated_seconds();
                                      }});
    return cudaSuccess;
  });
}

namespace {

cudaError_t with_event(const char* name, cudaEvent_t handle, const std::function<cudaError_t(CUevent_st&)>& body) {
  return api_call(name, [&] {
    CUevent_st* const event = find_event(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t failure = failure_of(event->device); failure != cudaSuccess) return failure;
    if (event->captured) return cudaErrorCapturedEvent;
    return body(*event);
  });
}

}  // namespace

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return with_event("cudaEventQuery", handle, [](CUevent_st& event) {
    const std::shared_ptr<Record> record = event.latest;
    const int device = event.device;
    if (record == nullptr || record->done) return cudaSuccess;
    Machine::instance().run_some();
    if (const cudaError_t failure = failure_of(device); failure != cudaSuccess) return failure;
    return record->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return with_event("cudaEventSynchronize", handle, [](CUevent_st& event) {
    const std::shared_ptr<Record> record = event.latest;
    const int device = event.device;
    if (record != nullptr) Machine::instance().wait_for([&] { return record->done || failure_of(device) != cudaSuccess; }, nullptr);
    return failure_of(device);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return with_event("cudaEventElapsedTime", start, [&](CUevent_st& first) {
    const CUevent_st* const second = find_event(end);
    if (second == nullptr || first.latest == nullptr || second->latest == nullptr) return cudaErrorInvalidResourceHandle;
    if (((first.flags | second->flags) & cudaEventDisableTiming) != 0) return cudaErrorInvalidResourceHandle;
    if (!first.latest->done || !second->latest->done) return cudaErrorNotReady;
    *milliseconds = static_cast<float>(1e3 * (second->latest->seconds - first.latest->seconds));
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return api_call("cudaFuncSetAttribute", [&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || static_cast<std::size_t>(value) > kSharedBytes) return cudaErrorInvalidValue;
    Machine::instance().shared_limits[function] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return api_call("cudaFuncGetAttributes", [&] {
    if (Machine::instance().settings.compute_capability != 90) return cudaErrorNoKernelImageForDevice;
    note_loaded_kernel(current_device(), function);
    *attributes = {};
    attributes->binaryVersion = 90;
    attributes->maxThreadsPerBlock = 1024;
    return cudaSuccess;
  });
}
