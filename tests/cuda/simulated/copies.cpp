// Copies and fills. Asynchronous ones read and write when their turn comes, but for what the real library does at once: pageable
// host memory is read at the call, and written before the call returns.
#include <cstdint>
#include <cstring>

#include "tests/cuda/simulated/machine.h"

namespace trident::simulated {

namespace {

enum class Place : std::uint8_t { kPageable, kPinned, kDevice };

struct Copy {
  std::byte* to;
  std::size_t to_pitch;
  const std::byte* from;
  std::size_t from_pitch;
  std::size_t width, height;
};

std::size_t extent(std::size_t pitch, std::size_t width, std::size_t height) {
  return height == 0 ? 0 : (height - 1) * pitch + width;
}

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

void move(const Copy& c) {
  for (std::size_t row = 0; row < c.height; ++row) std::memmove(c.to + row * c.to_pitch, c.from + row * c.from_pitch, c.width);
}

cudaError_t copy_async(const Copy& c, cudaMemcpyKind kind, cudaStream_t handle, const char* what) {
  Machine& machine = Machine::instance();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (c.width == 0 || c.height == 0) return cudaSuccess;
  if (c.width > c.to_pitch || c.width > c.from_pitch) return cudaErrorInvalidPitchValue;
  const std::optional<Place> to = place_of(c.to, extent(c.to_pitch, c.width, c.height)),
                             from = place_of(c.from, extent(c.from_pitch, c.width, c.height));
  if (!to || !from) return cudaErrorInvalidValue;
  if (!fits(kind, *to, *from)) return cudaErrorInvalidValue;
  if (stream->capture && (*to == Place::kPageable || *from == Place::kPageable))
    return spoil(*stream, cudaErrorStreamCaptureUnsupported);
  if (*from == Place::kPageable && *to == Place::kDevice) {
    auto staged = std::make_shared<std::vector<std::byte>>(c.width * c.height);
    move({staged->data(), c.width, c.from, c.from_pitch, c.width, c.height});
    machine.push(*stream, {what, nullptr, [c, staged] { move({c.to, c.to_pitch, staged->data(), c.width, c.width, c.height}); }});
    return cudaSuccess;
  }
  machine.push(*stream, {what, nullptr, [c] { move(c); }});
  if (*to != Place::kDevice && (*to == Place::kPageable || *from != Place::kDevice)) machine.wait_for({{stream, stream->enqueued}});
  return cudaSuccess;
}

// Synchronous copies are ordered with the default stream only.
cudaError_t copy_now(const Copy& c, cudaMemcpyKind kind, const char* what) { return copy_async(c, kind, nullptr, what); }

cudaError_t fill_async(std::byte* to, std::size_t pitch, int value, std::size_t width, std::size_t height, cudaStream_t handle,
                       const char* what) {
  Machine& machine = Machine::instance();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (width == 0 || height == 0) return cudaSuccess;
  if (width > pitch) return cudaErrorInvalidPitchValue;
  const std::optional<Place> place = place_of(to, extent(pitch, width, height));
  if (!place || *place == Place::kPageable) return cudaErrorInvalidValue;
  machine.push(*stream, {what, nullptr, [=] {
                           for (std::size_t row = 0; row < height; ++row) std::memset(to + row * pitch, value, width);
                         }});
  return cudaSuccess;
}

Copy flat(void* to, const void* from, std::size_t bytes) {
  return {static_cast<std::byte*>(to), bytes, static_cast<const std::byte*>(from), bytes, bytes, 1};
}

}  // namespace

}  // namespace trident::simulated

using namespace trident::simulated;

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api_call("cudaMemcpy", [&] { return copy_now(flat(to, from, bytes), kind, "cudaMemcpy"); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api_call("cudaMemcpyAsync", [&] { return copy_async(flat(to, from, bytes), kind, stream, "cudaMemcpyAsync"); });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  return api_call("cudaMemcpy2D", [&] {
    return copy_now({static_cast<std::byte*>(to), to_pitch, static_cast<const std::byte*>(from), from_pitch, width, height}, kind,
                    "cudaMemcpy2D");
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return api_call("cudaMemcpy2DAsync", [&] {
    return copy_async({static_cast<std::byte*>(to), to_pitch, static_cast<const std::byte*>(from), from_pitch, width, height}, kind,
                      stream, "cudaMemcpy2DAsync");
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return api_call("cudaMemset",
                  [&] { return fill_async(static_cast<std::byte*>(to), bytes, value, bytes, 1, nullptr, "cudaMemset"); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return api_call("cudaMemsetAsync",
                  [&] { return fill_async(static_cast<std::byte*>(to), bytes, value, bytes, 1, stream, "cudaMemsetAsync"); });
}

cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return api_call("cudaMemset2DAsync", [&] {
    return fill_async(static_cast<std::byte*>(to), pitch, value, width, height, stream, "cudaMemset2DAsync");
  });
}
