#include <cstdint>

#include "core/philox.h"
#include "device/cuda/kernels/flat.cuh"

namespace trident::cuda_kernels {

namespace {

// Numbers: UpdateNumbers, or where they lie.
template <UpdateRule rule, class T, class Numbers, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    update_kernel(I count, I of_each, T* param, float* master, UpdateStates states, const float* grad, Numbers numbers) {
  using Bodies = RowBodies<n>;
  const Stretch s = stretch_of_block(count, of_each);
  Bodies::template update_row<rule>(FlatTeam<n>{}, param + s.first, master + s.first,
                                       Bodies::template states_from<rule>(states, s.first), grad + s.first, s.count,
                                       value_of(numbers));
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
template <UpdateRule rule, bool kRows, class Numbers, int n>
__global__ void __launch_bounds__(kMaxThreads, 2)
    update_at_random_kernel(I count, I of_each, Bf16* param, float* master, UpdateStates states, const float* grad, Numbers numbers,
                            RoundedElements elements) {
  using Bodies = RowBodies<n>;
  const Stretch s = stretch_of_block(count, of_each);
  const UpdateNumbers values = value_of(numbers);
  const PhiloxKey key{elements.key[0], elements.key[1]};
  I first = elements.first_index + s.first;
  std::uint32_t columns = 1, column = 0;
  if constexpr (kRows) {
    const I row = (elements.first_column + s.first) / elements.columns;
    first = elements.first_index + row * elements.stride;
    columns = static_cast<std::uint32_t>(elements.columns);
    column = static_cast<std::uint32_t>(elements.first_column + s.first - row * elements.columns);
  }
  Bodies::template update_row<rule>(FlatTeam<n>{}, param + s.first, master + s.first,
                                       Bodies::template states_from<rule>(states, s.first), grad + s.first, s.count, values,
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

template <UpdateRule rule, class Numbers>
void update_by(Stream stream, RowType t, void* param, float* master, const UpdateStates& states, const float* grad, I count,
               const Numbers& numbers, const RoundedElements* at_random) {
  // Four elements: 16 bytes of everything but a 16-bit parameter.
  const bool aligned = are_aligned({param, master, states.of[0], states.of[1], grad}, 0);
  if (at_random == nullptr) {
    return with_type(t, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      with_lanes<float>(aligned, [&](auto n) {
        launch_flat("update", listed<update_kernel<rule, T, Numbers, n>>(), n, count, stream, as(param, type), master, states,
                    grad, numbers);
      });
    });
  }
  RoundedElements elements = *at_random;
  const bool rows = elements.columns != elements.stride;
  if (!rows) elements.first_index += elements.first_column;
  const I together = rows ? elements.first_index | elements.first_column | elements.columns | elements.stride : elements.first_index;
  with_lanes<float>(aligned && together % 4 == 0, [&](auto n) {
    const auto kernel = rows ? listed<update_at_random_kernel<rule, true, Numbers, n>>()
                             : listed<update_at_random_kernel<rule, false, Numbers, n>>();
    launch_flat("update_at_random", kernel, n, count, stream, static_cast<Bf16*>(param), master, states, grad, numbers, elements);
  });
}

template <class Numbers>
void update_with(UpdateRule rule, Stream stream, RowType t, void* param, float* master, const UpdateStates& states,
                 const float* grad, I count, const Numbers& numbers, const RoundedElements* at_random) {
  switch (rule) {
#define TRIDENT_UPDATE_BY(r, name, states_of_it) \
  case UpdateRule::r: return update_by<UpdateRule::r>(stream, t, param, master, states, grad, count, numbers, at_random);
    TRIDENT_UPDATE_RULES(TRIDENT_UPDATE_BY)
#undef TRIDENT_UPDATE_BY
  }
}

}  // namespace

void update(Stream stream, UpdateRule rule, RowType t, void* param, float* master, const UpdateStates& states,
            const float* grad, I count, const UpdateNumbers& numbers, const RoundedElements* at_random) {
  update_with(rule, stream, t, param, master, states, grad, count, numbers, at_random);
}

void update_from_memory(Stream stream, UpdateRule rule, RowType t, void* param, float* master, const UpdateStates& states,
                        const float* grad, I count, const UpdateNumbers* numbers, const RoundedElements* at_random) {
  update_with(rule, stream, t, param, master, states, grad, count, numbers, at_random);
}

}  // namespace trident::cuda_kernels
