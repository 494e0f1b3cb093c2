// The bodies of device/row_kernels in the vocabulary of vectors of a few elements.
#pragma once

#include "device/cuda/kernels/team.cuh"

namespace trident::cuda_kernels {

template <int kLanes>
struct RowBodies {
  using RowVec = Lanes<kLanes>;
  using PairVec = PairLanes<kLanes>;

  TRIDENT_ROW_BODY RowVec broadcast(float x) { return all_lanes<kLanes>(x); }

  template <class T>
  TRIDENT_ROW_BODY RowVec load(const T* p, AllLanes) {
    return load_packed<kLanes>(p).lanes();
  }
  template <class T>
  TRIDENT_ROW_BODY RowVec load(const T* p, SomeLanes lanes) {
    RowVec x;
    TRIDENT_UNROLL
    for (int k = 0; k < kLanes; ++k) x.at[k] = k < lanes.count ? to_float(p[k]) : 0.0f;
    return x;
  }
  template <class T>
  TRIDENT_ROW_BODY void store(T* p, const RowVec& x, AllLanes) {
    store_packed(p, Packed<T, kLanes>::of(x));
  }
  template <class T>
  TRIDENT_ROW_BODY void store(T* p, const RowVec& x, SomeLanes lanes) {
    TRIDENT_UNROLL
    for (int k = 0; k < kLanes; ++k)
      if (k < lanes.count) from_float(p[k], x.at[k]);
  }
  // Rows and sums in registers.
  template <class T>
  TRIDENT_ROW_BODY RowVec load(const Packed<T, kLanes>& piece, AllLanes) {
    return piece.lanes();
  }
  TRIDENT_ROW_BODY RowVec load(CachedSum<kLanes> sum, AllLanes) { return *sum.at; }
  TRIDENT_ROW_BODY void store(CachedSum<kLanes> sum, const RowVec& x, AllLanes) { *sum.at = x; }

  template <class T>
  TRIDENT_ROW_BODY RowVec round_to(const RowVec& x) {
    if constexpr (kIsHalf<T>)
      return Packed<T, kLanes>::of(x).lanes();
    else
      return x;
  }
  TRIDENT_ROW_BODY RowVec fma(const RowVec& a, const RowVec& b, const RowVec& c) {
    RowVec r;
    TRIDENT_UNROLL
    for (int k = 0; k < kLanes; ++k) r.at[k] = __fmaf_rn(a.at[k], b.at[k], c.at[k]);
    return r;
  }
  TRIDENT_ROW_BODY RowVec square_root(const RowVec& x) {
    return map_lanes(x, [](float a) { return __fsqrt_rn(a); });
  }
  // 1, -1, or x itself where it is zero or NaN.
  TRIDENT_ROW_BODY RowVec sign(const RowVec& x) {
    return map_lanes(x, [](float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; });
  }
  // The larger (smaller) of a and b; b where either is NaN.
  TRIDENT_ROW_BODY RowVec larger(const RowVec& a, const RowVec& b) {
    return map_lanes(a, b, [](float x, float y) { return x > y ? x : y; });
  }
  TRIDENT_ROW_BODY RowVec smaller(const RowVec& a, const RowVec& b) {
    return map_lanes(a, b, [](float x, float y) { return x < y ? x : y; });
  }
  // Within one unit in the last place; on the host a polynomial stands here.
  TRIDENT_ROW_BODY RowVec exponential(const RowVec& x) {
    return map_lanes(x, [](float a) { return expf(a); });
  }
  // Likewise.
  TRIDENT_ROW_BODY RowVec hyperbolic_tangent(const RowVec& x) {
    return map_lanes(x, [](float a) { return tanhf(a); });
  }

// Each needs the ones before it.
// clang-format off
#include "device/row_kernels/activations.inl"
#include "device/row_kernels/elementwise.inl"
#include "device/row_kernels/heads.inl"
#include "device/row_kernels/loss.inl"
#include "device/row_kernels/norms.inl"
#include "device/row_kernels/optimizer.inl"
  // clang-format on
};

}  // namespace trident::cuda_kernels
