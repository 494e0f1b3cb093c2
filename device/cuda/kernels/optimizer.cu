#include "device/cuda/kernels/flat.cuh"

namespace trident::cuda_kernels {

namespace {

__device__ __forceinline__ AdamWStep value_of(const AdamWStep& step) { return step; }
__device__ __forceinline__ AdamWStep value_of(const AdamWStep* step) { return *step; }

// Step: an AdamWStep, or where one lies.
template <class T, class Step, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    adamw_kernel(I count, I of_each, T* param, float* master, float* m, float* v, const float* grad, Step step) {
  const Stretch s = stretch_of_block(count, of_each);
  RowBodies<n>::adamw_row(FlatTeam<n>{}, param + s.first, master + s.first, m + s.first, v + s.first, grad + s.first, s.count,
                          value_of(step));
}

template <class Step>
void update(Stream stream, RowType t, void* param, float* master, float* m, float* v, const float* grad, I count, const Step& step) {
  with_type(t, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    // Four elements: 16 bytes of everything but a 16-bit parameter.
    with_lanes<float>(are_aligned({param, master, m, v, grad}, 0), [&](auto n) {
      launch_flat("adamw", adamw_kernel<T, Step, n>, n, count, stream, as(param, type), master, m, v, grad, step);
    });
  });
}

}  // namespace

void adamw(Stream stream, RowType t, void* param, float* master, float* m, float* v, const float* grad, I count,
           const AdamWStep& step) {
  update(stream, t, param, master, m, v, grad, count, step);
}

void adamw_from_memory(Stream stream, RowType t, void* param, float* master, float* m, float* v, const float* grad, I count,
                       const AdamWStep* step) {
  update(stream, t, param, master, m, v, grad, count, step);
}

}  // namespace trident::cuda_kernels
