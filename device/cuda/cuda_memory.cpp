#include "device/cuda/cuda_memory.h"

#include <cstring>

#include "core/check.h"
#include "core/number_text.h"
#include "device/cuda/cuda_error.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

std::string device_name(int device) {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, device) == cudaSuccess ? properties.name : "unknown";
}

[[noreturn]] void throw_out_of_memory(int device, std::int64_t bytes, const std::string& name) {
  cudaGetLastError();
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking how much memory is free");
  throw ConfigError(fmt::format(
      "memory: {} needs {:.1f} MB of CUDA device {} ({}), which has {:.1f} of {:.1f} MB free; make batch.micro or batch.sequence "
      "smaller, set recompute.policy = full or recompute.head_chunk, shard more with parallel.zero, use more tensor or pipeline ranks, "
      "or end other processes on the GPU",
      name, megabytes(static_cast<std::size_t>(bytes)), device, device_name(device), megabytes(free), megabytes(total)));
}

}  // namespace

Buffer allocate_cuda(int device, std::int64_t bytes, const std::string& name) {
  TRIDENT_CHECK(bytes >= 0, "{}: {} bytes", name, bytes);
  check_allocation_allowed(static_cast<std::size_t>(bytes), name);
  if (bytes == 0) return {};
  use_cuda_device(device);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) throw_out_of_memory(device, bytes, name);
  check_cuda(status, name);
  Buffer buffer(data, bytes, MemoryKind::kDevice, [device](void* p, std::int64_t) {
    cudaSetDevice(device);
    cudaFree(p);
  });
  // On the default stream, with which other streams are not ordered: so the host waits.
  check_cuda(cudaMemset(data, 0, static_cast<std::size_t>(bytes)), name);
  check_cuda(cudaStreamSynchronize(nullptr), name);
  return buffer;
}

Buffer allocate_pinned(std::int64_t bytes, const std::string& name) {
  TRIDENT_CHECK(bytes >= 0, "{}: {} bytes", name, bytes);
  check_allocation_allowed(static_cast<std::size_t>(bytes), name);
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw ConfigError(fmt::format(
        "memory: {} needs {:.1f} MB of page-locked host memory and the system refused them; free memory on this machine or start "
        "fewer ranks on it",
        name, megabytes(static_cast<std::size_t>(bytes))));
  }
  check_cuda(status, name);
  std::memset(data, 0, static_cast<std::size_t>(bytes));
  return {data, bytes, MemoryKind::kPinned, [](void* p, std::int64_t) { cudaFreeHost(p); }};
}

}  // namespace trident
