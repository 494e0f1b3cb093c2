// On the host: which instance of a kernel fits the operands, and the shapes of launches.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "device/cuda/kernels/kernels.h"
#include "device/cuda/kernels/row_bodies.cuh"

namespace trident::cuda_kernels {

// Elements of T in 16 bytes.
template <class T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

template <int n>
using Constant = std::integral_constant<int, n>;

inline bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }
// Whether all rows begin at multiples of 16 bytes.
inline bool are_aligned(std::initializer_list<const void*> operands, I row_bytes) {
  for (const void* p : operands)
    if (!is_aligned(p)) return false;
  return row_bytes % 16 == 0;
}

// f(null pointer of the element type).
template <class F>
void with_type(RowType t, F&& f) {
  if (t == RowType::kF32)
    f(static_cast<float*>(nullptr));
  else if (t == RowType::kBF16)
    f(static_cast<Bf16*>(nullptr));
  else
    f(static_cast<F16*>(nullptr));
}
// The same for elements that are moved and not looked at: one type for both of 16 bits.
template <class F>
void with_moved_type(RowType t, F&& f) {
  if (t == RowType::kF32)
    f(static_cast<float*>(nullptr));
  else
    f(static_cast<Bf16*>(nullptr));
}
// f(elements per vector): whole vectors where everything is aligned, else single elements.
template <class T, class F>
void with_lanes(bool aligned, F&& f) {
  if (aligned)
    f(Constant<kVector<T>>{});
  else
    f(Constant<1>{});
}

// f(null pointer of the element type, elements per vector).
template <class F>
void with_instance(RowType t, std::initializer_list<const void*> operands, I row_bytes, F&& f) {
  with_type(t, [&](auto* type) {
    with_lanes<std::remove_pointer_t<decltype(type)>>(are_aligned(operands, row_bytes), [&](auto n) { f(type, n); });
  });
}

template <class T>
T* as(void* p, T*) {
  return static_cast<T*>(p);
}
template <class T>
const T* as(const void* p, T*) {
  return static_cast<const T*>(p);
}
inline I bytes_of(RowType t) { return t == RowType::kF32 ? 4 : 2; }

constexpr I divide_up(I a, I b) { return (a + b - 1) / b; }
// As few whole warps as give every piece a thread, `most` at most.
inline unsigned threads_for(I pieces, int most = kMaxThreads) {
  const I needed = divide_up(pieces < 1 ? 1 : pieces, kWarp) * kWarp;
  return static_cast<unsigned>(needed < most ? needed : most);
}

// A row cut into one tile per block, each thread taking `per_thread` vectors of n elements.
struct Tiling {
  unsigned threads = 0, tiles = 0;  // tiles of one row
  I width = 0;                      // of a tile, in elements
};
inline Tiling tile_row(I width, int n, int per_thread) {
  Tiling t;
  t.threads = threads_for(divide_up(width, I{n} * per_thread));
  t.width = I{t.threads} * n * per_thread;
  t.tiles = grid_size(divide_up(width, t.width));
  return t;
}

// A kernel's argument, or what lies in device memory where it points to.
template <class T>
__device__ __forceinline__ const T& value_of(const T& argument) {
  return argument;
}
template <class T>
__device__ __forceinline__ T value_of(const T* where) {
  return *where;
}

}  // namespace trident::cuda_kernels
