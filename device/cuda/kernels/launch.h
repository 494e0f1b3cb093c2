// Launching kernels, and what kernel files need of CUDA: the only header about CUDA that a .cu file includes.
//
// nvcc brings the language (__global__, threadIdx, float4, ...) into every .cu file by itself; a simulation of CUDA that compiles
// the same files as C++ brings its own, with the same names.
#pragma once

#include <cstddef>
#include <string_view>

#include "device/cuda/kernels/kernel_list.h"

namespace trident {

struct LaunchExtent {
  unsigned x = 1, y = 1, z = 1;
  bool empty() const { return x == 0 || y == 0 || z == 0; }
};

struct LaunchShape {
  LaunchExtent blocks, threads;
  std::size_t shared_bytes = 0;  // of dynamic_shared()
};

// A launch configuration that knows whose it is: messages of a simulation name the kernel.
struct NamedLaunch : cudaLaunchConfig_t {
  const char* name = "";
};

// A block may have this much shared memory without asking.
constexpr std::size_t kSharedBytesUnasked = 48 << 10;

// Throws what check_cuda (device/cuda/cuda_error.h) throws, naming the kernel and the shape of its launch.
[[noreturn]] void throw_launch_error(cudaError_t status, std::string_view name, const LaunchShape& shape);

// Enqueues kernel(args...), written listed<kernel>(), on `stream`, whose device is the calling thread's current one. No blocks: no launch. `name` is a
// literal.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, const Args&... args) {
  if (shape.blocks.empty()) return;
  NamedLaunch config;
  config.gridDim = dim3(shape.blocks.x, shape.blocks.y, shape.blocks.z);
  config.blockDim = dim3(shape.threads.x, shape.threads.y, shape.threads.z);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = nullptr;
  config.numAttrs = 0;
  config.name = name;
  cudaError_t status = cudaSuccess;
  if (shape.shared_bytes > kSharedBytesUnasked)
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
  if (status == cudaSuccess) status = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (status != cudaSuccess) throw_launch_error(status, name, shape);
}

#ifdef __CUDACC__
// The block's dynamic shared memory, 16-byte aligned, of LaunchShape::shared_bytes. (A simulation, where extern variables cannot
// stand for it, defines the same function.)
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char trident_dynamic_shared[];
  return reinterpret_cast<T*>(trident_dynamic_shared);
}
#endif

}  // namespace trident
