#include <cstdint>

#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

namespace {

// Elements as they are moved: 16 bytes, or one element of 4 bytes or 2 (Bf16, whatever they are).
using Sixteen = Words<4>;

// Both directions of the move between heads [B, n, S, D] and rows [S, B, C] need these; sizes in units.
struct HeadLayout {
  unsigned batch, sequence;
  int num_heads, head_dim;
  I columns, first_column;
};

// Calls f(place in heads, place in rows) for each unit of the block's row: block number s * B + b.
template <class F>
__device__ __forceinline__ void each_of_row(const HeadLayout& l, F&& f) {
  const unsigned s = blockIdx.x / l.batch, b = blockIdx.x % l.batch;
  const I row = I{blockIdx.x} * l.columns + l.first_column;
  const int units = l.num_heads * l.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < units; i += static_cast<int>(blockDim.x)) {
    const int head = i / l.head_dim, at = i % l.head_dim;
    f(((I{b} * l.num_heads + head) * l.sequence + s) * l.head_dim + at, row + i);
  }
}

template <class Unit>
__global__ void __launch_bounds__(kMaxThreads, 4) split_heads_kernel(Unit* heads, const Unit* rows, HeadLayout layout) {
  each_of_row(layout, [&](I head, I row) { heads[head] = rows[row]; });
}

template <class Unit>
__global__ void __launch_bounds__(kMaxThreads, 4) merge_heads_kernel(Unit* rows, const Unit* heads, HeadLayout layout) {
  each_of_row(layout, [&](I head, I row) { rows[row] = heads[head]; });
}

// Calls f(null pointer to the unit, layout in units).
template <class F>
void with_units(RowType t, std::initializer_list<const void*> operands, I batch, I num_heads, I sequence, I head_dim, I columns,
                I first_column, F&& f) {
  const I bytes = bytes_of(t);
  const auto layout = [&](I unit) {
    return HeadLayout{static_cast<unsigned>(batch), static_cast<unsigned>(sequence),
                      static_cast<int>(num_heads),  static_cast<int>(head_dim * bytes / unit),
                      columns * bytes / unit,       first_column * bytes / unit};
  };
  if (are_aligned(operands, head_dim * bytes) && columns * bytes % 16 == 0 && first_column * bytes % 16 == 0)
    f(static_cast<Sixteen*>(nullptr), layout(16));
  else if (t == RowType::kF32)
    f(static_cast<float*>(nullptr), layout(4));
  else
    f(static_cast<Bf16*>(nullptr), layout(2));
}

// Elements from a sample, head and position to the next.
struct HeadStrides {
  I sample, head, position;
};
HeadStrides of_heads(I num_heads, I sequence, I head_dim) {
  return {num_heads * sequence * head_dim, sequence * head_dim, head_dim};
}
HeadStrides of_rows(I batch, I columns, I head_dim) { return {columns, head_dim, batch * columns}; }

// `out` may be x, with the same strides.
template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    rope_kernel(T* out, const T* x, HeadStrides out_strides, HeadStrides x_strides, const float* cos, const float* sin,
                const std::int32_t* position, I num_heads, unsigned sequence, I head_dim, I half, float direction,
                unsigned row_tiles, unsigned rows_of_tile, unsigned pieces) {
  // A block takes a tile of one head's rows, a thread one piece of one row.
  const unsigned head = blockIdx.x / row_tiles, s = blockIdx.x % row_tiles * rows_of_tile + threadIdx.x / pieces;
  if (threadIdx.x / pieces >= rows_of_tile || s >= sequence) return;
  const I b = I{head} / num_heads, of_sample = I{head} % num_heads;
  const I at = I{position[b * sequence + s]} * half;
  const auto row = [&](const HeadStrides& strides) { return b * strides.sample + of_sample * strides.head + s * strides.position; };
  T* const to = out + row(out_strides);
  const T* const from = x + row(x_strides);
  for (unsigned piece = threadIdx.x % pieces; piece * I{n} < half; piece += pieces)
    RowBodies<n>::rope_row(OnePiece<n>{piece * I{n}}, to, from, cos + at, sin + at, half, direction);
  if (to == from) return;
  for (I i = 2 * half + I{threadIdx.x % pieces} * n; i < head_dim; i += I{pieces} * n)
    OnePiece<n>{i}.each(head_dim, [&](I rest, auto lanes) {
      RowBodies<n>::store(to + rest, RowBodies<n>::load(from + rest, lanes), lanes);
    });
}

struct Rotated {
  void* out;
  const void* x;
  HeadStrides out_strides, x_strides;
};
// `rows_aligned`: whether rows of either begin at multiples of 16 bytes if the operands do.
void rotate(const char* name, Stream stream, RowType t, const Rotated& heads, const float* cos, const float* sin,
            const std::int32_t* position, I batch, I num_heads, I sequence, I head_dim, I half, float direction,
            bool rows_aligned) {
  with_type(t, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = rows_aligned && are_aligned({heads.out, heads.x, cos, sin}, head_dim * bytes_of(t)) &&
                         half * bytes_of(t) % 16 == 0;
    with_lanes<T>(aligned, [&](auto n) {
      const I pieces = min(divide_up(half < 1 ? 1 : half, n), I{kMaxThreads});
      const I rows_of_tile = min(kMaxThreads / pieces, sequence < 1 ? 1 : sequence);
      const I row_tiles = divide_up(sequence, rows_of_tile);
      launch(name, listed<rope_kernel<T, n>>(),
             {.blocks = {grid_size(batch * num_heads * row_tiles)}, .threads = {threads_for(rows_of_tile * pieces)}}, stream,
             as(heads.out, type), as(heads.x, type), heads.out_strides, heads.x_strides, cos, sin, position, num_heads,
             static_cast<unsigned>(sequence), head_dim, half, direction, static_cast<unsigned>(row_tiles),
             static_cast<unsigned>(rows_of_tile), static_cast<unsigned>(pieces));
    });
  });
}

bool rows_are_aligned(RowType t, I columns, I first_column) {
  return columns * bytes_of(t) % 16 == 0 && first_column * bytes_of(t) % 16 == 0;
}

}  // namespace

void split_heads(Stream stream, RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim, I columns,
                 I first_column) {
  with_units(t, {heads, rows}, batch, num_heads, sequence, head_dim, columns, first_column,
             [&](auto* unit, const HeadLayout& layout) {
               launch("split_heads", listed<split_heads_kernel<std::remove_pointer_t<decltype(unit)>>>(),
                      {.blocks = {grid_size(sequence * batch)}, .threads = {threads_for(I{layout.num_heads} * layout.head_dim)}},
                      stream, as(heads, unit), as(rows, unit), layout);
             });
}

void merge_heads(Stream stream, RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim, I columns,
                 I first_column) {
  with_units(t, {heads, rows}, batch, num_heads, sequence, head_dim, columns, first_column,
             [&](auto* unit, const HeadLayout& layout) {
               launch("merge_heads", listed<merge_heads_kernel<std::remove_pointer_t<decltype(unit)>>>(),
                      {.blocks = {grid_size(sequence * batch)}, .threads = {threads_for(I{layout.num_heads} * layout.head_dim)}},
                      stream, as(rows, unit), as(heads, unit), layout);
             });
}

void split_rotated_heads(Stream stream, RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim,
                         I columns, I first_column, const float* cos, const float* sin, const std::int32_t* position, I half) {
  const void* const first = static_cast<const char*>(rows) + first_column * bytes_of(t);
  rotate("split_rotated_heads", stream, t,
         {heads, first, of_heads(num_heads, sequence, head_dim), of_rows(batch, columns, head_dim)}, cos, sin, position,
         batch, num_heads, sequence, head_dim, half, 1.0f, rows_are_aligned(t, columns, first_column));
}

void merge_rotated_heads(Stream stream, RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim,
                         I columns, I first_column, const float* cos, const float* sin, const std::int32_t* position, I half) {
  void* const first = static_cast<char*>(rows) + first_column * bytes_of(t);
  rotate("merge_rotated_heads", stream, t,
         {first, heads, of_rows(batch, columns, head_dim), of_heads(num_heads, sequence, head_dim)}, cos, sin, position,
         batch, num_heads, sequence, head_dim, half, -1.0f, rows_are_aligned(t, columns, first_column));
}

void rope(Stream stream, RowType t, void* x, const float* cos, const float* sin, const std::int32_t* position, I batch, I num_heads,
          I sequence, I head_dim, I half, Transpose inverse) {
  if (half == 0) return;
  const HeadStrides strides = of_heads(num_heads, sequence, head_dim);
  rotate("rope", stream, t, {x, x, strides, strides}, cos, sin, position, batch, num_heads, sequence, head_dim, half,
         inverse == Transpose::kYes ? -1.0f : 1.0f, true);
}

}  // namespace trident::cuda_kernels
