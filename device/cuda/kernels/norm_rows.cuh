// How the norm kernels spread rows over a grid: which team takes a row of a given width, and what it keeps in registers.
#pragma once

#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

// A norm kernel is an instance of this: vectors of kLanes elements; rows in kPieces vectors per thread, or of any length (0).
template <class T, int kLanes, class GroupType, int kPieceCount>
struct NormRows {
  using Element = T;
  using Group = GroupType;
  using Bodies = RowBodies<kLanes>;
  static constexpr int n = kLanes, kPieces = kPieceCount;
  using RowTeam = Team<n, Group, kPieces>;

  // The row at x for a body: in registers, or where it is.
  static __device__ __forceinline__ auto row(const RowTeam& team, const T* x, I width) {
    if constexpr (kPieces > 0)
      return team.cache(x, width);
    else
      return x;
  }
};

// f(NormRows, threads of a block, rows of a block): rows of up to kPieces vectors per thread are read once, longer ones twice.
template <int kPieces, int kThreads, class T, class F>
void with_norm_rows(T*, bool aligned, I width, F&& f) {
  const I vectors = width / kVector<T>;
  if (!aligned)
    f(NormRows<T, 1, BlockGroup, 0>{}, threads_for(width), 1);
  else if (vectors <= kPieces * kWarp)
    f(NormRows<T, kVector<T>, WarpGroup, kPieces>{}, unsigned{kMaxThreads}, kMaxThreads / kWarp);
  else if (vectors <= kPieces * kThreads)
    f(NormRows<T, kVector<T>, BlockGroup, kPieces>{}, threads_for(divide_up(vectors, kPieces), kThreads), 1);
  else
    f(NormRows<T, kVector<T>, BlockGroup, 0>{}, unsigned{kMaxThreads}, 1);
}

}  // namespace trident::cuda_kernels
