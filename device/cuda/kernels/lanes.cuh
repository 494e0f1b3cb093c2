// Vectors of the row kernels on a CUDA device: a few elements in the registers of one thread, loaded and stored 16 bytes at a time.
//
// RowBodies<n> holds the vocabulary that device/row_kernels/lanes.inl describes, for vectors of n elements, and the bodies written
// in it. n is 16 / sizeof(T) where every row is aligned to 16 bytes, else 1: accesses of whole vectors are aligned by construction.
// Products and sums are never contracted (compiled so): the same operations in the same order give the host's bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cuda/kernels/launch.h"
#include "device/row_kernels/row_kernels.h"

// Before every function that works on vectors, as on the host.
#define TRIDENT_ROW_BODY static __device__ __forceinline__

// Before loops whose index must be a constant, for what it indexes to live in registers; and before loops whose iterations may
// overlap.
#ifdef __CUDACC__
#define TRIDENT_UNROLL _Pragma("unroll")
#define TRIDENT_UNROLL_4 _Pragma("unroll 4")
#else
#define TRIDENT_UNROLL
#define TRIDENT_UNROLL_4
#endif

namespace trident::cuda_kernels {

using I = std::int64_t;

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};
template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

// The pair of bf16 nearest to two floats, ties to even, the first in the low half; NaN stays NaN.
__device__ __forceinline__ std::uint32_t bf16_bits(float x) {
  const std::uint32_t u = __float_as_uint(x);
  return x == x ? (u + 0x7fffu + ((u >> 16) & 1u)) >> 16 : ((u >> 16) | 0x40u);
}
__device__ __forceinline__ std::uint32_t bf16_pair(float low, float high) {
#ifdef __CUDA_ARCH__  // the same in one instruction
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return bf16_bits(low) | (bf16_bits(high) << 16);
#endif
}

// The same of f16, as core/f16.h rounds; beyond the range is infinity.
__device__ __forceinline__ std::uint32_t f16_bits(float x) {
  const std::uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude >= 0x38800000u) return sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
  return sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u);  // a multiple of 2^-24, as the sum is
}
__device__ __forceinline__ std::uint32_t f16_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return f16_bits(low) | (f16_bits(high) << 16);
#endif
}
__device__ __forceinline__ float float_of_f16(std::uint16_t bits) {
#ifdef __CUDA_ARCH__
  float x;
  asm("{ .reg .f16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(x) : "h"(bits));
  return x;
#else
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7fffu;
  if (magnitude < 0x0400u) return __uint_as_float(__float_as_uint(static_cast<float>(magnitude) * 0x1p-24f) | sign);
  if (magnitude >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  return __uint_as_float(sign | (magnitude + (112u << 10)) << 13);
#endif
}

// Memory as it is moved: 1, 2 or 4 words in one access, more in several of 4.
template <int kWords>
struct __attribute__((may_alias, aligned(kWords < 4 ? 4 * kWords : 16))) Words {
  std::uint32_t at[kWords];
};

// How many elements of a vector are meant: all, or the first few at the end of a row.
struct AllLanes {};
struct SomeLanes {
  int count;
};

// A place in a row: element `first`, which is piece number `piece` of those that this thread works on. Adds to pointers.
struct Piece {
  I first;
  int piece;
};
template <class T>
__device__ __forceinline__ T* operator+(T* row, Piece at) {
  return row + at.first;
}

template <int n>
struct Lanes {
  float at[n];

  __device__ __forceinline__ float operator[](int k) const { return at[k]; }
};

template <int n>
__device__ __forceinline__ Lanes<n> all_lanes(float x) {
  Lanes<n> r;
  TRIDENT_UNROLL
  for (int k = 0; k < n; ++k) r.at[k] = x;
  return r;
}

#define TRIDENT_LANES_OPERATOR(op)                                                        \
  template <int n>                                                                        \
  __device__ __forceinline__ Lanes<n> operator op(const Lanes<n>& a, const Lanes<n>& b) { \
    Lanes<n> r;                                                                           \
    TRIDENT_UNROLL                                                                        \
    for (int k = 0; k < n; ++k) r.at[k] = a.at[k] op b.at[k];                             \
    return r;                                                                             \
  }                                                                                       \
  template <int n>                                                                        \
  __device__ __forceinline__ Lanes<n> operator op(const Lanes<n>& a, float b) {           \
    Lanes<n> r;                                                                           \
    TRIDENT_UNROLL                                                                        \
    for (int k = 0; k < n; ++k) r.at[k] = a.at[k] op b;                                   \
    return r;                                                                             \
  }
TRIDENT_LANES_OPERATOR(+)
TRIDENT_LANES_OPERATOR(-)
TRIDENT_LANES_OPERATOR(*)
TRIDENT_LANES_OPERATOR(/)
#undef TRIDENT_LANES_OPERATOR

template <int n>
__device__ __forceinline__ Lanes<n> operator-(const Lanes<n>& a) {
  Lanes<n> r;
  TRIDENT_UNROLL
  for (int k = 0; k < n; ++k) r.at[k] = -a.at[k];
  return r;
}

// f of each lane.
template <int n, class F>
__device__ __forceinline__ Lanes<n> map_lanes(const Lanes<n>& x, F&& f) {
  Lanes<n> r;
  TRIDENT_UNROLL
  for (int k = 0; k < n; ++k) r.at[k] = f(x.at[k]);
  return r;
}
template <int n, class F>
__device__ __forceinline__ Lanes<n> map_lanes(const Lanes<n>& x, const Lanes<n>& y, F&& f) {
  Lanes<n> r;
  TRIDENT_UNROLL
  for (int k = 0; k < n; ++k) r.at[k] = f(x.at[k], y.at[k]);
  return r;
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Bf16 x) { return __uint_as_float(std::uint32_t{x.bits} << 16); }
__device__ __forceinline__ float to_float(F16 x) { return float_of_f16(x.bits); }
__device__ __forceinline__ void from_float(float& to, float x) { to = x; }
__device__ __forceinline__ void from_float(Bf16& to, float x) { to.bits = static_cast<std::uint16_t>(bf16_pair(x, 0.0f)); }
__device__ __forceinline__ void from_float(F16& to, float x) { to.bits = static_cast<std::uint16_t>(f16_pair(x, 0.0f)); }

// Two elements of 16 bits in a word, the first in its low half.
template <class T>
__device__ __forceinline__ std::uint32_t pair_of(float low, float high) {
  if constexpr (std::is_same_v<T, Bf16>)
    return bf16_pair(low, high);
  else
    return f16_pair(low, high);
}
template <class T>
__device__ __forceinline__ float first_of(std::uint32_t pair) {
  return to_float(T{static_cast<std::uint16_t>(pair)});
}
template <class T>
__device__ __forceinline__ float second_of(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __uint_as_float(pair & 0xffff0000u);
  else
    return to_float(T{static_cast<std::uint16_t>(pair >> 16)});
}

// n elements of T as they lie in memory, and as lanes.
template <class T, int n>
struct Packed;
template <int n>
struct __attribute__((may_alias)) Packed<float, n> {
  Words<n> words;
  __device__ __forceinline__ Lanes<n> lanes() const {
    Lanes<n> r;
    TRIDENT_UNROLL
    for (int k = 0; k < n; ++k) r.at[k] = __uint_as_float(words.at[k]);
    return r;
  }
  static __device__ __forceinline__ Packed of(const Lanes<n>& x) {
    Packed p;
    TRIDENT_UNROLL
    for (int k = 0; k < n; ++k) p.words.at[k] = __float_as_uint(x.at[k]);
    return p;
  }
};
template <class T, int n>
  requires kIsHalf<T>
struct __attribute__((may_alias)) Packed<T, n> {
  Words<n / 2> words;
  __device__ __forceinline__ Lanes<n> lanes() const {
    Lanes<n> r;
    TRIDENT_UNROLL
    for (int k = 0; k < n / 2; ++k) {
      r.at[2 * k] = first_of<T>(words.at[k]);
      r.at[2 * k + 1] = second_of<T>(words.at[k]);
    }
    return r;
  }
  static __device__ __forceinline__ Packed of(const Lanes<n>& x) {
    Packed p;
    TRIDENT_UNROLL
    for (int k = 0; k < n / 2; ++k) p.words.at[k] = pair_of<T>(x.at[2 * k], x.at[2 * k + 1]);
    return p;
  }
};
template <class T>
  requires kIsHalf<T>
struct __attribute__((may_alias)) Packed<T, 1> {
  T one;
  __device__ __forceinline__ Lanes<1> lanes() const { return {{to_float(one)}}; }
  static __device__ __forceinline__ Packed of(const Lanes<1>& x) {
    Packed p;
    from_float(p.one, x.at[0]);
    return p;
  }
};

template <int n, class T>
__device__ __forceinline__ Packed<T, n> load_packed(const T* p) {
  return *reinterpret_cast<const Packed<T, n>*>(p);
}
template <class T, int n>
__device__ __forceinline__ void store_packed(T* p, const Packed<T, n>& x) {
#ifdef __CUDA_ARCH__  // an assignment of 16 bytes is often taken apart into words
  constexpr int kWords = static_cast<int>(n * sizeof(T) / 4);
  if constexpr (kWords % 4 == 0 && kWords > 0) {
    TRIDENT_UNROLL
    for (int w = 0; w < kWords; w += 4)
      __stcg(reinterpret_cast<uint4*>(p) + w / 4, make_uint4(x.words.at[w], x.words.at[w + 1], x.words.at[w + 2], x.words.at[w + 3]));
    return;
  }
#endif
  *reinterpret_cast<Packed<T, n>*>(p) = x;
}

}  // namespace trident::cuda_kernels
