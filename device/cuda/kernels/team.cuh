// Who works on a row together: the teams that the bodies of device/row_kernels are given on a CUDA device.
//
// Reductions have a fixed order that depends on the length of the row and the number of threads only.
#pragma once

#include "device/cuda/kernels/lanes.cuh"

namespace trident::cuda_kernels {

constexpr int kWarp = 32;
constexpr unsigned kAllOfWarp = 0xffffffffu;
constexpr int kMaxThreads = 256;  // of a block, where nothing else is said

struct Sum {
  static __device__ __forceinline__ float none() { return 0.0f; }
  static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
// NaNs are passed over.
struct Largest {
  static __device__ __forceinline__ float none() { return __uint_as_float(0xff800000u); }
  static __device__ __forceinline__ float of(float a, float b) { return a > b || b != b ? a : b; }
};

template <class Combine>
__device__ __forceinline__ float reduce_warp(float x) {
  TRIDENT_UNROLL
  for (int step = kWarp / 2; step > 0; step /= 2) x = Combine::of(x, __shfl_xor_sync(kAllOfWarp, x, step));
  return x;
}

// One or two values of every thread of the block at once; every thread gets the results.
template <class Combine, int count>
__device__ __forceinline__ void reduce_block(float (&x)[count]) {
  __shared__ float of_warp[count][kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  TRIDENT_UNROLL
  for (int c = 0; c < count; ++c) {
    x[c] = reduce_warp<Combine>(x[c]);
    if (lane == 0) of_warp[c][warp] = x[c];
  }
  __syncthreads();
  TRIDENT_UNROLL
  for (int c = 0; c < count; ++c) x[c] = reduce_warp<Combine>(lane < warps ? of_warp[c][lane] : Combine::none());
  __syncthreads();  // the next reduction writes there
}

// A row per warp; a block has several.
struct WarpGroup {
  static __device__ __forceinline__ int size() { return kWarp; }
  static __device__ __forceinline__ int rank() { return static_cast<int>(threadIdx.x) % kWarp; }
  static __device__ __forceinline__ int in_block() { return static_cast<int>(threadIdx.x) / kWarp; }
  static __device__ __forceinline__ int per_block() { return static_cast<int>(blockDim.x) / kWarp; }
  static __device__ __forceinline__ void barrier() { __syncwarp(); }
  template <class Combine, int count>
  static __device__ __forceinline__ void reduce(float (&x)[count]) {
    TRIDENT_UNROLL
    for (int c = 0; c < count; ++c) x[c] = reduce_warp<Combine>(x[c]);
  }
};

// A row per block.
struct BlockGroup {
  static __device__ __forceinline__ int size() { return static_cast<int>(blockDim.x); }
  static __device__ __forceinline__ int rank() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int in_block() { return 0; }
  static __device__ __forceinline__ int per_block() { return 1; }
  static __device__ __forceinline__ void barrier() { __syncthreads(); }
  template <class Combine, int count>
  static __device__ __forceinline__ void reduce(float (&x)[count]) {
    reduce_block<Combine>(x);
  }
};

// The group's number in the grid.
template <class Group>
__device__ __forceinline__ I group_number() {
  return I{blockIdx.x} * Group::per_block() + Group::in_block();
}

template <int n>
struct PairLanes {
  Lanes<n> first, second;
};
struct PairSum {
  float first, second;
};

// A row of which each thread holds its pieces in registers.
template <class T, int n, int kPieces>
struct CachedRow {
  Packed<T, n> piece[kPieces];
};
template <class T, int n, int kPieces>
__device__ __forceinline__ const Packed<T, n>& operator+(const CachedRow<T, n, kPieces>& row, Piece at) {
  return row.piece[at.piece];
}

// Sums over rows of what a thread's pieces give, in registers: stands where a float* would.
template <int n>
struct CachedSums {
  Lanes<n>* pieces;
};
template <int n>
struct CachedSum {
  Lanes<n>* at;
};
template <int n>
__device__ __forceinline__ CachedSum<n> operator+(CachedSums<n> sums, Piece at) {
  return {sums.pieces + at.piece};
}

// kPieces > 0: rows of at most kPieces * n elements per thread, a multiple of n; pieces are numbered, so that rows may be cached.
// kPieces = 0: rows of any length.
template <int n, class Group, int kPieces>
class Team {
 public:
  __device__ __forceinline__ void barrier() const { Group::barrier(); }
  __device__ __forceinline__ bool leads() const { return Group::rank() == 0; }
  __device__ __forceinline__ int rank() const { return Group::rank(); }
  __device__ __forceinline__ int size() const { return Group::size(); }

  template <class F>
  __device__ __forceinline__ void each(I count, F&& f) const {
    if constexpr (kPieces > 0) {
      TRIDENT_UNROLL
      for (int k = 0; k < kPieces; ++k) {
        const I first = (k * Group::size() + Group::rank()) * n;
        if (first < count) f(Piece{first, k}, AllLanes{});
      }
    } else {
      const I whole = count / n * n, step = I{Group::size()} * n;
      I i = I{Group::rank()} * n;
      TRIDENT_UNROLL_4
      for (; i < whole; i += step) f(i, AllLanes{});
      if constexpr (n > 1)
        if (i == whole && whole < count) f(i, SomeLanes{static_cast<int>(count - whole)});
    }
  }

  template <class F>
  __device__ __forceinline__ float sum(I count, F&& f) const {
    return reduce<Sum>(count, f);
  }
  template <class F>
  __device__ __forceinline__ float largest(I count, F&& f) const {
    return reduce<Largest>(count, f);
  }
  // Two sums in one pass: f returns a PairVec.
  template <class F>
  __device__ __forceinline__ PairSum sum_pair(I count, F&& f) const {
    auto a = all_lanes<n>(0.0f), b = all_lanes<n>(0.0f);
    each(count, [&](auto i, auto lanes) {
      const auto pair = f(i, lanes);
      a = a + first_lanes(pair.first, 0.0f, lanes);
      b = b + first_lanes(pair.second, 0.0f, lanes);
    });
    float sums[2] = {over_lanes<Sum>(a), over_lanes<Sum>(b)};
    Group::template reduce<Sum>(sums);
    return {sums[0], sums[1]};
  }

  template <class T>
  __device__ __forceinline__ CachedRow<T, n, kPieces> cache(const T* row, I count) const {
    CachedRow<T, n, kPieces> cached;
    each(count, [&](Piece at, AllLanes) { cached.piece[at.piece] = load_packed<n>(row + at.first); });
    return cached;
  }

 private:
  static __device__ __forceinline__ Lanes<n> first_lanes(const Lanes<n>& x, float, AllLanes) { return x; }
  static __device__ __forceinline__ Lanes<n> first_lanes(const Lanes<n>& x, float rest, SomeLanes lanes) {
    Lanes<n> r;
    TRIDENT_UNROLL
    for (int k = 0; k < n; ++k) r.at[k] = k < lanes.count ? x.at[k] : rest;
    return r;
  }
  template <class Combine>
  static __device__ __forceinline__ float over_lanes(Lanes<n> x) {
    TRIDENT_UNROLL
    for (int step = n / 2; step > 0; step /= 2) {
      TRIDENT_UNROLL
      for (int k = 0; k < step; ++k) x.at[k] = Combine::of(x.at[k], x.at[k + step]);
    }
    return x.at[0];
  }
  template <class Combine, class F>
  __device__ __forceinline__ float reduce(I count, F&& f) const {
    auto a = all_lanes<n>(Combine::none());
    each(count, [&](auto i, auto lanes) {
      a = map_lanes(a, first_lanes(f(i, lanes), Combine::none(), lanes), [](float x, float y) { return Combine::of(x, y); });
    });
    float result[1] = {over_lanes<Combine>(a)};
    Group::template reduce<Combine>(result);
    return result[0];
  }
};

// A thread by itself on one piece of a row.
template <int n>
struct OnePiece {
  I first;
  template <class F>
  __device__ __forceinline__ void each(I count, F&& f) const {
    if (first + n <= count)
      f(first, AllLanes{});
    else if (first < count)
      f(first, SomeLanes{static_cast<int>(count - first)});
  }
};

}  // namespace trident::cuda_kernels
