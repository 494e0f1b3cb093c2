#include "device/cuda/kernels/column_sums.cuh"
#include "device/cuda/kernels/norm_rows.cuh"

namespace trident::cuda_kernels {

namespace {

// Fewer registers for rows than forward, because their sums need some: bf16 rows of up to 8192 elements.
constexpr int kPieces = 2, kThreads = 512;

// Where a group adds up what rows give per column: in registers, or in its block's row of partial sums where rows are of any
// length. `count` sums per column: d_weight, and d_bias beside it.
template <class Rows, int count>
struct RowSums {
  static constexpr bool kCached = Rows::kPieces > 0;
  Lanes<Rows::n> at[count][kCached ? Rows::kPieces : 1];
  float* partial;  // the block's row: `count` times `width`

  __device__ __forceinline__ void clear(const typename Rows::RowTeam& team, float* row, I width) {
    partial = row;
    if constexpr (kCached) {
      TRIDENT_UNROLL
      for (int c = 0; c < count; ++c) {
        TRIDENT_UNROLL
        for (int k = 0; k < Rows::kPieces; ++k) at[c][k] = all_lanes<Rows::n>(0.0f);
      }
    } else {
      for (int c = 0; c < count; ++c)
        team.each(width, [&](I i, auto lanes) { Rows::Bodies::store(row + c * width + i, all_lanes<Rows::n>(0.0f), lanes); });
    }
  }
  template <int c>
  __device__ __forceinline__ auto sums(I width) {
    if constexpr (kCached)
      return CachedSums<Rows::n>{at[c]};
    else
      return partial + c * width;
  }
  // Writes the block's row of partial sums: the groups of the block in order.
  __device__ __forceinline__ void write(const typename Rows::RowTeam& team, I width) {
    if constexpr (kCached) {
      using Bodies = typename Rows::Bodies;
      for (int group = 0; group < Rows::Group::per_block(); ++group) {
        if (group > 0) __syncthreads();
        if (Rows::Group::in_block() != group) continue;
        TRIDENT_UNROLL
        for (int c = 0; c < count; ++c)
          team.each(width, [&](Piece i, AllLanes lanes) {
            float* const to = partial + c * width + i.first;
            Bodies::store(to, group == 0 ? at[c][i.piece] : Bodies::load(to, lanes) + at[c][i.piece], lanes);
          });
      }
    }
  }
};

template <class Rows, class T>
__global__ void __launch_bounds__(kThreads, 1)
    rms_norm_backward_kernel(T* d_x, float* partials, const T* d_y, const T* x, const T* weight, const float* rstd, I rows, I width,
                             Accumulate accumulate_x) {
  const typename Rows::RowTeam team;
  RowSums<Rows, 1> sums;
  sums.clear(team, partials + I{blockIdx.x} * width, width);
  for (I r = group_number<typename Rows::Group>(); r < rows; r += I{gridDim.x} * Rows::Group::per_block()) {
    const I at = r * width;
    const auto row = Rows::row(team, x + at, width), d_row = Rows::row(team, d_y + at, width);
    Rows::Bodies::rms_norm_backward_row(team, d_x + at, sums.template sums<0>(width), d_row, row, weight, rstd[r], width,
                                        accumulate_x);
  }
  sums.write(team, width);
}

template <class Rows, class T>
__global__ void __launch_bounds__(kThreads, 1)
    rms_norm_apply_backward_kernel(T* d_x, float* partials, const T* d_y, const T* x, const T* weight, const float* rstd,
                                   const float* dots, I rows, I width, I total, Accumulate accumulate_x) {
  const typename Rows::RowTeam team;
  RowSums<Rows, 1> sums;
  sums.clear(team, partials + I{blockIdx.x} * width, width);
  for (I r = group_number<typename Rows::Group>(); r < rows; r += I{gridDim.x} * Rows::Group::per_block()) {
    const I at = r * width;
    const auto row = Rows::row(team, x + at, width), d_row = Rows::row(team, d_y + at, width);
    Rows::Bodies::rms_norm_apply_backward_row(team, d_x + at, sums.template sums<0>(width), d_row, row, weight, rstd[r], dots[r],
                                              width, total, accumulate_x);
  }
  sums.write(team, width);
}

template <class Rows, class T>
__global__ void __launch_bounds__(kThreads, 1)
    layer_norm_backward_kernel(T* d_x, float* partials, const T* d_y, const T* x, const T* weight, const float* mean,
                               const float* rstd, I rows, I width, Accumulate accumulate_x) {
  const typename Rows::RowTeam team;
  RowSums<Rows, 2> sums;
  sums.clear(team, partials + I{blockIdx.x} * 2 * width, width);
  for (I r = group_number<typename Rows::Group>(); r < rows; r += I{gridDim.x} * Rows::Group::per_block()) {
    const I at = r * width;
    const auto row = Rows::row(team, x + at, width), d_row = Rows::row(team, d_y + at, width);
    Rows::Bodies::layer_norm_backward_row(team, d_x + at, sums.template sums<0>(width), sums.template sums<1>(width), d_row, row,
                                          weight, mean[r], rstd[r], width, accumulate_x);
  }
  sums.write(team, width);
}

// Blocks to spread rows over: enough threads for a large GPU, several rows for each, and no more partial rows than there is room
// for.
I backward_blocks(I rows, unsigned threads, int rows_of_block, I columns, const Scratch& scratch) {
  constexpr I kThreadsInAll = 128 << 10, kRowsEach = 8;
  I blocks = divide_up(rows, kRowsEach * rows_of_block);
  blocks = min(blocks, kThreadsInAll / threads);
  return min(blocks, scratch.floats / columns);
}

}  // namespace

void rms_norm_backward(Stream stream, RowType t, void* d_x, float* d_weight, const void* d_y, const void* x, const void* weight,
                       const float* rstd, I rows, I width, Accumulate accumulate_x, Accumulate accumulate_weight, Scratch scratch) {
  I blocks = 0;
  with_type(t, [&](auto* type) {
    const bool aligned = are_aligned({d_x, d_y, x, weight, scratch.data}, width * bytes_of(t));
    with_norm_rows<kPieces, kThreads>(type, aligned, width, [&](auto instance, unsigned threads, int per_block) {
      blocks = backward_blocks(rows, threads, per_block, width, scratch);
      launch("rms_norm_backward", listed<rms_norm_backward_kernel<decltype(instance), std::remove_pointer_t<decltype(type)>>>(),
             {.blocks = {grid_size(blocks)}, .threads = {threads}}, stream, as(d_x, type), scratch.data, as(d_y, type), as(x, type),
             as(weight, type), rstd, rows, width, accumulate_x);
    });
  });
  add_partial_rows(stream, "rms_norm_backward_sums", {d_weight, nullptr, width}, scratch.data, blocks, width, accumulate_weight);
}

void rms_norm_apply_backward(Stream stream, RowType t, void* d_x, float* d_weight, const void* d_y, const void* x,
                             const void* weight, const float* rstd, const float* dots, I rows, I width, I total,
                             Accumulate accumulate_x, Accumulate accumulate_weight, Scratch scratch) {
  I blocks = 0;
  with_type(t, [&](auto* type) {
    const bool aligned = are_aligned({d_x, d_y, x, weight, scratch.data}, width * bytes_of(t));
    with_norm_rows<kPieces, kThreads>(type, aligned, width, [&](auto instance, unsigned threads, int per_block) {
      blocks = backward_blocks(rows, threads, per_block, width, scratch);
      launch("rms_norm_apply_backward",
             listed<rms_norm_apply_backward_kernel<decltype(instance), std::remove_pointer_t<decltype(type)>>>(),
             {.blocks = {grid_size(blocks)}, .threads = {threads}}, stream, as(d_x, type), scratch.data, as(d_y, type), as(x, type),
             as(weight, type), rstd, dots, rows, width, total, accumulate_x);
    });
  });
  add_partial_rows(stream, "rms_norm_apply_backward_sums", {d_weight, nullptr, width}, scratch.data, blocks, width,
                   accumulate_weight);
}

void layer_norm_backward(Stream stream, RowType t, void* d_x, float* d_weight, float* d_bias, const void* d_y, const void* x,
                         const void* weight, const float* mean, const float* rstd, I rows, I width, Accumulate accumulate_x,
                         Accumulate accumulate_weight, Scratch scratch) {
  I blocks = 0;
  with_type(t, [&](auto* type) {
    const bool aligned = are_aligned({d_x, d_y, x, weight, scratch.data}, width * bytes_of(t));
    with_norm_rows<kPieces, kThreads>(type, aligned, width, [&](auto instance, unsigned threads, int per_block) {
      blocks = backward_blocks(rows, threads, per_block, 2 * width, scratch);
      launch("layer_norm_backward", listed<layer_norm_backward_kernel<decltype(instance), std::remove_pointer_t<decltype(type)>>>(),
             {.blocks = {grid_size(blocks)}, .threads = {threads}}, stream, as(d_x, type), scratch.data, as(d_y, type), as(x, type),
             as(weight, type), mean, rstd, rows, width, accumulate_x);
    });
  });
  add_partial_rows(stream, "layer_norm_backward_sums", {d_weight, d_bias, width}, scratch.data, blocks, 2 * width,
                   accumulate_weight);
}

}  // namespace trident::cuda_kernels
