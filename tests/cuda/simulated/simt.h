// The language of CUDA kernels as plain C++: .cu files compiled with this header run on the CPU, one fiber per CUDA thread.
//
// Blocks run one after another; the threads of a block take turns at barriers and warp operations, in an order that Settings
// chooses (runtime.h). Aborts with the kernel's name: a barrier that not all threads reach, a warp operation whose lanes do not all
// come, or come to different operations. Shared memory holds garbage when a block starts; what a shuffle reads from a lane that is
// not there is garbage. Not modelled: memory order (a missing barrier shows as a wrong number in some fiber order), inline PTX.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "device/no_allocation.h"

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
// One variable per process (one kernel runs at a time), in a section that the simulation finds and fills with garbage. Every
// variable has a section of its own, for gcc refuses variables of templates and others in one.
#define TRIDENT_SIMT_TEXT_OF(x) #x
#define TRIDENT_SIMT_SECTION(number) "simt_shared_" TRIDENT_SIMT_TEXT_OF(number)
#define __shared__ static __attribute__((section(TRIDENT_SIMT_SECTION(__COUNTER__))))

namespace trident::simulated {

// ---- the running thread (there is one in the process, for kernels run under the simulation's lock)
struct RunningThread {
  uint3 thread, block;
  dim3 threads, blocks;
  unsigned lane;
  unsigned char* dynamic_shared;
};
extern RunningThread running;

void block_barrier();  // __syncthreads

struct WarpMeeting {
  const std::uint64_t* values;  // of every lane; valid until this thread's next warp operation
  unsigned lanes;               // that took part
};
// Waits for the lanes of `mask` that have not exited, all in the operation called `operation` (compared by address).
WarpMeeting warp_meeting(unsigned mask, const char* operation, std::uint64_t value);
// Memory where nothing was written reads as this.
std::uint64_t garbage();

struct KernelLaunch {
  const char* name;
  const void* function;
  dim3 blocks, threads;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
// Enqueues `body`, run once per thread. `pointers`: the kernel's pointer arguments, which must be null or memory a device can
// reach.
cudaError_t enqueue_kernel(const KernelLaunch& launch, std::function<void()> body, const void* const* pointers,
                           std::size_t num_pointers);

template <class T>
const void* pointer_or_null(const T& value) {
  if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) return value;
  return nullptr;
}

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T shuffle(unsigned mask, const char* operation, T value, unsigned source) {
  const WarpMeeting met = warp_meeting(mask, operation, to_bits(value));
  return from_bits<T>((met.lanes >> source & 1u) != 0 ? met.values[source] : garbage());
}

}  // namespace trident::simulated

namespace trident {
template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(simulated::running.dynamic_shared);
}
}  // namespace trident

// The configuration is launch.h's NamedLaunch.
template <class Config, class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const Config* config, void (*kernel)(Params...), Args&&... args) {
  const trident::AllocationExemption simulation;
  const void* pointers[] = {nullptr, trident::simulated::pointer_or_null(args)...};
  return trident::simulated::enqueue_kernel(
      {config->name, reinterpret_cast<const void*>(kernel), config->gridDim, config->blockDim, config->dynamicSmemBytes,
       config->stream},
      [kernel, ... values = static_cast<Params>(args)] { kernel(values...); }, pointers, 1 + sizeof...(args));
}
template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

inline constexpr const uint3& threadIdx = trident::simulated::running.thread;
inline constexpr const uint3& blockIdx = trident::simulated::running.block;
inline constexpr const dim3& blockDim = trident::simulated::running.threads;
inline constexpr const dim3& gridDim = trident::simulated::running.blocks;
inline constexpr int warpSize = 32;

// ---- block and warp
inline void __syncthreads() { trident::simulated::block_barrier(); }
inline void __syncwarp(unsigned mask = ~0u) { trident::simulated::warp_meeting(mask, "__syncwarp", 0); }

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const unsigned lane = trident::simulated::running.lane, source = (lane ^ static_cast<unsigned>(lanes)) & 31u;
  const bool within = source < (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return trident::simulated::shuffle(mask, "__shfl_xor_sync", value, within ? source : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = trident::simulated::running.lane, within = lane & static_cast<unsigned>(width - 1);
  return trident::simulated::shuffle(mask, "__shfl_up_sync", value, within >= delta ? lane - delta : lane);
}

// ---- atomics: threads take turns, so plain code is atomic
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::exchange(*address, static_cast<T>(*address + value));
}

// ---- stores
template <class T>
void __stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}

// ---- arithmetic
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline unsigned __float_as_uint(float x) { return trident::simulated::from_bits<unsigned>(trident::simulated::to_bits(x)); }
inline float __uint_as_float(unsigned x) { return trident::simulated::from_bits<float>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) std::common_type_t<A, B> min(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return y < x ? y : x;
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) std::common_type_t<A, B> max(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return x < y ? y : x;
}
