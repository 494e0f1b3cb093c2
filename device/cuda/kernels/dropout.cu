#include <cstdint>

#include "core/philox.h"
#include "device/cuda/kernels/flat.cuh"

namespace trident::cuda_kernels {

namespace {

// The factor of number `number`: survivors (uniform number in (0, 1] above the probability) are scaled up, the others are 0.
// The masks of n consecutive numbers share counter blocks of four.
template <int n>
__device__ __forceinline__ Lanes<n> survivors(std::uint64_t number, PhiloxKey key, float probability, float survivor) {
  Lanes<n> factor;
  if constexpr (n > 1) {  // rows of whole vectors: `number` is a multiple of 4
    TRIDENT_UNROLL
    for (int k = 0; k < n; k += 4) {
      const std::uint64_t block = number / 4 + static_cast<std::uint64_t>(k / 4);
      const PhiloxCounter words =
          philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0u, 0u}, key);
      TRIDENT_UNROLL
      for (int w = 0; w < 4; ++w)
        if (k + w < n) factor.at[k + w] = uniform_from_bits(words[w]) > probability ? survivor : 0.0f;
    }
  } else {
    const std::uint64_t block = number / 4;
    const PhiloxCounter words =
        philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0u, 0u}, key);
    const unsigned word = static_cast<unsigned>(number % 4);
    const std::uint32_t bits = word == 0 ? words[0] : word == 1 ? words[1] : word == 2 ? words[2] : words[3];
    factor.at[0] = uniform_from_bits(bits) > probability ? survivor : 0.0f;
  }
  return factor;
}

// Draw: a DropoutDraw, or where one lies; spec's own key is not used.
template <class T, class Draw, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    dropout_kernel(T* out, const T* x, DropoutSpec spec, Draw draw, unsigned batch, unsigned tiles, I tile_width, I width) {
  using Rows = RowBodies<n>;
  const RowTile t = tile_of_block(tiles, tile_width, width);
  const unsigned s = static_cast<unsigned>(t.row) / batch, b = static_cast<unsigned>(t.row) % batch;
  const DropoutDraw drawn = value_of(draw);
  const I token = drawn.samples[b] * spec.sequence + spec.position_offset + s;
  const I all_columns = spec.all_columns > 0 ? spec.all_columns : width;
  const std::uint64_t first = static_cast<std::uint64_t>(token * all_columns + spec.first_column + t.first);
  const PhiloxKey key{drawn.key[0], drawn.key[1]};
  const float survivor = 1.0f / (1.0f - spec.probability);
  const I at = t.row * width + t.first;
  FlatTeam<n>{}.each(t.count, [&](I i, auto lanes) {
    const auto factor = survivors<n>(first + static_cast<std::uint64_t>(i), key, spec.probability, survivor);
    Rows::store(out + at + i, Rows::load(x + at + i, lanes) * factor, lanes);
  });
}

template <class Draw>
void drop(Stream stream, RowType t, void* out, const void* x, I sequence, I batch, I width, const DropoutSpec& spec, const Draw& draw) {
  with_type(t, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool whole_blocks = spec.all_columns % 4 == 0 && spec.first_column % 4 == 0;  // numbers of vectors begin with a counter
    with_lanes<T>(whole_blocks && are_aligned({out, x}, width * bytes_of(t)), [&](auto n) {
      const Tiling tiling = tile_row(width, n, 1);
      launch("dropout", listed<dropout_kernel<T, Draw, n>>(), {.blocks = {grid_size(sequence * batch * tiling.tiles)}, .threads = {tiling.threads}},
             stream, as(out, type), as(x, type), spec, draw, static_cast<unsigned>(batch), tiling.tiles, tiling.width, width);
    });
  });
}

}  // namespace

void dropout(Stream stream, RowType t, void* out, const void* x, const std::int64_t* samples, I sequence, I batch, I width,
             const DropoutSpec& spec) {
  drop(stream, t, out, x, sequence, batch, width, spec, DropoutDraw{{spec.key[0], spec.key[1]}, samples});
}

void dropout_from_memory(Stream stream, RowType t, void* out, const void* x, I sequence, I batch, I width, const DropoutSpec& spec,
                         const DropoutDraw* draw) {
  drop(stream, t, out, x, sequence, batch, width, spec, draw);
}

}  // namespace trident::cuda_kernels
