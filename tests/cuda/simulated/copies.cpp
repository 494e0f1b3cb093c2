// Copies and fills. Asynchronous ones read and write when their turn comes, but for what the real library does at once: pageable
// host memory is read at the call, and written before the call returns.
#include <cstdint>
#include <cstring>

#include "tests/cuda/simulated/machine.h"

namespace trident::simulated {

namespace {

enum class Place : std::uint8_t { kPageable, kPinned, kDevice };

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

// Where the bytes lie; nothing if they are partly in memory of CUDA's.
std::optional<Place> place_of(const void* data, std::size_t bytes) {
  const Machine& machine = Machine::instance();
  if (const Allocation* const whole = machine.find(data, bytes))
    return whole->kind == Allocation::Kind::kDevice ? Place::kDevice : Place::kPinned;
  return machine.find(data, 0) != nullptr && machine.find(data, 1) != nullptr ? std::nullopt
                                                                              : std::optional<Place>(Place::kPageable);
}

bool fits(cudaMemcpyKind kind, Place to, Place from) {
  switch (kind) {
    case cudaMemcpyHostToHost: return to != Place::kDevice && from != Place::kDevice;
    case cudaMemcpyHostToDevice: return to == Place::kDevice && from != Place::kDevice;
    case cudaMemcpyDeviceToHost: return to != Place::kDevice && from == Place::kDevice;
    case cudaMemcpyDeviceToDevice: return to == Place::kDevice && from == Place::kDevice;
    case cudaMemcpyDefault: return true;
  }
  return false;
}

void move(const Copy& c) { std::memmove(c.to, c.from, c.bytes); }

cudaError_t copy_async(const Copy& c, cudaMemcpyKind kind, cudaStream_t handle, const char* what) {
  Machine& machine = Machine::instance();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (c.bytes == 0) return cudaSuccess;
  const std::optional<Place> to = place_of(c.to, c.bytes), from = place_of(c.from, c.bytes);
  if (!to || !from) return cudaErrorInvalidValue;
  if (!fits(kind, *to, *from)) return cudaErrorInvalidValue;
  if (stream->capture && (*to == Place::kPageable || *from == Place::kPageable))
    return spoil(*stream, cudaErrorStreamCaptureUnsupported);
  if (*from == Place::kPageable && *to == Place::kDevice) {
    auto staged = std::make_shared<std::vector<std::byte>>(c.bytes);
    move({staged->data(), c.from, c.bytes});
    machine.push(*stream, {what, nullptr, [c, staged] { move({c.to, staged->data(), c.bytes}); }});
    return cudaSuccess;
  }
  machine.push(*stream, {what, nullptr, [c] { move(c); }});
  if (*to != Place::kDevice && (*to == Place::kPageable || *from != Place::kDevice)) machine.wait_for({{stream, stream->enqueued}});
  return cudaSuccess;
}

cudaError_t fill_async(void* to, int value, std::size_t bytes, cudaStream_t handle, const char* what) {
  Machine& machine = Machine::instance();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  const std::optional<Place> place = place_of(to, bytes);
  if (!place || *place == Place::kPageable) return cudaErrorInvalidValue;
  machine.push(*stream, {what, nullptr, [=] { std::memset(to, value, bytes); }});
  return cudaSuccess;
}

}  // namespace

}  // namespace trident::simulated

using namespace trident::simulated;

// Synchronous ones are ordered with the default stream only.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api_call("cudaMemcpy", [&] { return copy_async({to, from, bytes}, kind, nullptr, "cudaMemcpy"); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api_call("cudaMemcpyAsync", [&] { return copy_async({to, from, bytes}, kind, stream, "cudaMemcpyAsync"); });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return api_call("cudaMemset", [&] { return fill_async(to, value, bytes, nullptr, "cudaMemset"); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return api_call("cudaMemsetAsync", [&] { return fill_async(to, value, bytes, stream, "cudaMemsetAsync"); });
}
