#include <cstdint>

#include "core/philox.h"
#include "device/cuda/kernels/flat.cuh"

namespace trident::cuda_kernels {

namespace {

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
      launch_flat("adamw", listed<adamw_kernel<T, Step, n>>(), n, count, stream, as(param, type), master, m, v, grad, step);
    });
  });
}

// The 16 random bits of elements `element` to element + n - 1 of a tensor; n = 4: `element` is a multiple of 4.
template <int n>
__device__ __forceinline__ void random_halves(std::uint32_t (&halves)[n], std::uint64_t element, std::uint64_t update, PhiloxKey key) {
  const std::uint64_t block = element / 8;
  const PhiloxCounter words = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                          static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32)}, key);
  const unsigned first = static_cast<unsigned>(element % 8);
  if constexpr (n == 4) {
    const std::uint32_t low = first == 0 ? words[0] : words[2], high = first == 0 ? words[1] : words[3];
    halves[0] = low & 0xffffu;
    halves[1] = low >> 16;
    halves[2] = high & 0xffffu;
    halves[3] = high >> 16;
  } else {
    static_assert(n == 1);
    const unsigned word = first / 2;
    const std::uint32_t pair = word == 0 ? words[0] : word == 1 ? words[1] : word == 2 ? words[2] : words[3];
    halves[0] = first % 2 == 0 ? pair & 0xffffu : pair >> 16;
  }
}

// The float whose upper half is x plus `bits` in the lower one; what has no bf16 beyond it stays, for a store to round.
__device__ __forceinline__ float round_at_random(float x, std::uint32_t bits) {
  const std::uint32_t u = __float_as_uint(x);
  return (u & 0x7fffffffu) > 0x7f7f0000u ? x : __uint_as_float((u + bits) & 0xffff0000u);
}

// kRows: rows are pieces of the tensor's rows; else elements follow one another from first_index on.
template <bool kRows, class Step, int n>
__global__ void __launch_bounds__(kMaxThreads, 2)
    adamw_stochastic_kernel(I count, I of_each, Bf16* param, float* master, float* m, float* v, const float* grad, Step step,
                            RoundedElements elements) {
  const Stretch s = stretch_of_block(count, of_each);
  const AdamWStep values = value_of(step);
  const PhiloxKey key{elements.key[0], elements.key[1]};
  I first = elements.first_index + s.first;
  std::uint32_t columns = 1, column = 0;
  if constexpr (kRows) {
    const I row = (elements.first_column + s.first) / elements.columns;
    first = elements.first_index + row * elements.stride;
    columns = static_cast<std::uint32_t>(elements.columns);
    column = static_cast<std::uint32_t>(elements.first_column + s.first - row * elements.columns);
  }
  RowBodies<n>::adamw_row(FlatTeam<n>{}, param + s.first, master + s.first, m + s.first, v + s.first, grad + s.first, s.count, values,
                          [&](I i, const Lanes<n>& next, auto) {
                            I element = first + i;
                            if constexpr (kRows) {  // columns are counted in 32 bits, which divide faster than 64
                              const std::uint32_t at = column + static_cast<std::uint32_t>(i), rows = at / columns;
                              element = first + rows * elements.stride + (at - rows * columns);
                            }
                            std::uint32_t halves[n];
                            random_halves(halves, static_cast<std::uint64_t>(element), values.update_number(), key);
                            Lanes<n> r;
                            TRIDENT_UNROLL
                            for (int k = 0; k < n; ++k) r.at[k] = round_at_random(next.at[k], halves[k]);
                            return r;
                          });
}

template <class Step>
void update_stochastic(Stream stream, Bf16* param, float* master, float* m, float* v, const float* grad, I count, const Step& step,
                       RoundedElements elements) {
  const bool rows = elements.columns != elements.stride;
  if (!rows) elements.first_index += elements.first_column;
  const I together = rows ? elements.first_index | elements.first_column | elements.columns | elements.stride : elements.first_index;
  with_lanes<float>(together % 4 == 0 && are_aligned({param, master, m, v, grad}, 0), [&](auto n) {
    const auto kernel = rows ? listed<adamw_stochastic_kernel<true, Step, n>>() : listed<adamw_stochastic_kernel<false, Step, n>>();
    launch_flat("adamw_stochastic", kernel, n, count, stream, param, master, m, v, grad, step, elements);
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

void adamw_stochastic(Stream stream, void* param, float* master, float* m, float* v, const float* grad, I count, const AdamWStep& step,
                      const RoundedElements& elements) {
  update_stochastic(stream, static_cast<Bf16*>(param), master, m, v, grad, count, step, elements);
}

void adamw_stochastic_from_memory(Stream stream, void* param, float* master, float* m, float* v, const float* grad, I count,
                                  const AdamWStep* step, const RoundedElements& elements) {
  update_stochastic(stream, static_cast<Bf16*>(param), master, m, v, grad, count, step, elements);
}

}  // namespace trident::cuda_kernels
