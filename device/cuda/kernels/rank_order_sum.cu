#include <cstdint>

#include "device/cuda/kernels/flat.cuh"

namespace trident::cuda_kernels {

namespace {

struct Sources {
  const void* of_rank[kMaxSources];
};

// Elements of T moved 16 bytes at a time, or one at a time; summed as A.
template <class T, int n>
struct __attribute__((may_alias, aligned(n * sizeof(T)))) Elements {
  T at[n];
};

template <class A, class T>
__device__ __forceinline__ A widen(T x) {
  if constexpr (kIsHalf<T>)
    return to_float(x);
  else
    return x;
}
template <class A, class T>
__device__ __forceinline__ void narrow(T& to, A x) {
  if constexpr (kIsHalf<T>)
    from_float(to, x);
  else
    to = x;
}

// Where either is NaN, so is the maximum.
template <SumOperation operation, class A>
__device__ __forceinline__ A combined(A a, A b) {
  if constexpr (operation == SumOperation::kSum) return a + b;
  return a > b || a != a ? a : b;
}

template <class T, class A, int n, SumOperation operation>
__global__ void __launch_bounds__(kMaxThreads, 4) rank_order_sum_kernel(T* out, Sources sources, int num_sources, I count) {
  const I i = (I{blockIdx.x} * blockDim.x + threadIdx.x) * n;
  if (i >= count) return;
  const auto load = [&](int rank, Elements<T, n>& to) {
    const T* const from = static_cast<const T*>(sources.of_rank[rank]) + i;
    if (i + n <= count)
      to = *reinterpret_cast<const Elements<T, n>*>(from);
    else
      for (int k = 0; k < n; ++k)
        if (i + k < count) to.at[k] = from[k];
  };
  Elements<T, n> value{};
  load(0, value);
  A sum[n];
  TRIDENT_UNROLL
  for (int k = 0; k < n; ++k) sum[k] = widen<A>(value.at[k]);
  TRIDENT_UNROLL_4
  for (int rank = 1; rank < num_sources; ++rank) {
    load(rank, value);
    TRIDENT_UNROLL
    for (int k = 0; k < n; ++k) sum[k] = combined<operation>(sum[k], widen<A>(value.at[k]));
  }
  TRIDENT_UNROLL
  for (int k = 0; k < n; ++k) narrow(value.at[k], sum[k]);
  if (i + n <= count)
    *reinterpret_cast<Elements<T, n>*>(out + i) = value;
  else
    for (int k = 0; k < n; ++k)
      if (i + k < count) out[i + k] = value.at[k];
}

template <class T, class A>
void launch_sum(Stream stream, void* out, const Sources& sources, int num_sources, bool aligned, I count, SumOperation operation) {
  with_lanes<T>(aligned, [&](auto n) {
    const LaunchShape shape{.blocks = {grid_size(divide_up(count, kMaxThreads * n))},
                            .threads = {threads_for(divide_up(count, n))}};
    launch("rank_order_sum",
           operation == SumOperation::kSum ? listed<rank_order_sum_kernel<T, A, n, SumOperation::kSum>>()
                                           : listed<rank_order_sum_kernel<T, A, n, SumOperation::kMax>>(),
           shape, stream, static_cast<T*>(out), sources, num_sources, count);
  });
}

}  // namespace

void rank_order_sum(Stream stream, SumType type, void* out, const void* const* sources, int num_sources, I count,
                    SumOperation operation) {
  Sources all{};
  bool aligned = is_aligned(out);
  for (int rank = 0; rank < num_sources; ++rank) {
    all.of_rank[rank] = sources[rank];
    aligned = aligned && is_aligned(sources[rank]);
  }
  switch (type) {
    case SumType::kF32: return launch_sum<float, float>(stream, out, all, num_sources, aligned, count, operation);
    case SumType::kBF16: return launch_sum<Bf16, float>(stream, out, all, num_sources, aligned, count, operation);
    case SumType::kF16: return launch_sum<F16, float>(stream, out, all, num_sources, aligned, count, operation);
    case SumType::kF64: return launch_sum<double, double>(stream, out, all, num_sources, aligned, count, operation);
    case SumType::kI32: return launch_sum<std::int32_t, std::int32_t>(stream, out, all, num_sources, aligned, count, operation);
    case SumType::kI64: return launch_sum<std::int64_t, std::int64_t>(stream, out, all, num_sources, aligned, count, operation);
  }
}

}  // namespace trident::cuda_kernels
