#include "device/cuda/kernels/column_sums.cuh"
#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

namespace {

// A block takes 32 columns, its warps take turns at the rows; then the warps' sums are added in order.
constexpr int kRowLanes = 32;

__global__ void __launch_bounds__(kWarp* kRowLanes)
    add_partial_rows_kernel(ColumnSums out, const float* partials, I rows, I columns, Accumulate accumulate) {
  __shared__ float of_warp[kRowLanes][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const I column = I{blockIdx.x} * kWarp + lane;
  float sum = 0.0f;
  if (column < columns) {
    TRIDENT_UNROLL_4
    for (I r = warp; r < rows; r += warps) sum += partials[r * columns + column];
  }
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
  for (int w = 1; w < warps; ++w) sum += of_warp[w][lane];
  float* const to = column < out.width ? out.first + column : out.second + (column - out.width);
  *to = accumulate == Accumulate::kYes ? *to + sum : sum;
}

// Partial sums of a chunk of rows: a block takes kWarp vectors of columns, its warps take turns at the rows.
constexpr int kChunkWarps = kMaxThreads / kWarp;

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    sum_rows_kernel(float* partials, const T* x, const T* times, I rows, I width, I rows_of_chunk) {
  using Rows = RowBodies<n>;
  __shared__ float of_warp[kChunkWarps][kWarp * n];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const I column = (I{blockIdx.x} * kWarp + lane) * n;
  const I first = I{blockIdx.y} * rows_of_chunk, end = min(rows, first + rows_of_chunk);
  auto sum = all_lanes<n>(0.0f);
  if (column < width) {
    TRIDENT_UNROLL_4
    for (I r = first + warp; r < end; r += kChunkWarps) {
      const auto values = Rows::load(x + r * width + column, AllLanes{});
      sum = times == nullptr ? sum + values : Rows::fma(values, Rows::load(times + r * width + column, AllLanes{}), sum);
    }
  }
  TRIDENT_UNROLL
  for (int k = 0; k < n; ++k) of_warp[warp][k * kWarp + lane] = sum.at[k];
  __syncthreads();
  if (warp > 0 || column >= width) return;
  for (int w = 1; w < kChunkWarps; ++w) {
    TRIDENT_UNROLL
    for (int k = 0; k < n; ++k) sum.at[k] += of_warp[w][k * kWarp + lane];
  }
  Rows::store(partials + I{blockIdx.y} * width + column, sum, AllLanes{});
}

}  // namespace

void add_partial_rows(Stream stream, const char* name, const ColumnSums& out, const float* partials, I rows, I columns,
                      Accumulate accumulate) {
  const I row_lanes = rows < 1 ? 1 : rows < kRowLanes ? rows : kRowLanes;
  launch(name, listed<add_partial_rows_kernel>(),
         {.blocks = {grid_size(divide_up(columns, kWarp))}, .threads = {static_cast<unsigned>(kWarp * row_lanes)}}, stream, out,
         partials, rows, columns, accumulate);
}

void sum_rows(Stream stream, RowType t, float* out, const void* x, const void* times, I rows, I width, Accumulate accumulate,
              Scratch scratch) {
  constexpr I kRowsOfChunk = 64, kBlocks = 1024;  // at least, at most
  I chunks = 0;
  with_instance(t, {x, times, scratch.data}, width * bytes_of(t), [&]<class T>(T* type, auto lanes) {
    const I tiles = divide_up(width, kWarp * lanes);
    if (tiles == 0) return;
    const I most = min(kBlocks / min(tiles, kBlocks), scratch.floats / width);
    chunks = min(divide_up(rows, kRowsOfChunk), most);
    const I rows_of_chunk = chunks == 0 ? 0 : divide_up(rows, chunks);
    if (chunks > 0) chunks = divide_up(rows, rows_of_chunk);
    launch("sum_rows", listed<sum_rows_kernel<T, lanes>>(),
           {.blocks = {grid_size(tiles), static_cast<unsigned>(chunks)}, .threads = {kMaxThreads}}, stream, scratch.data,
           as(x, type), as(times, type), rows, width, rows_of_chunk);
  });
  add_partial_rows(stream, "sum_rows_end", {out, nullptr, width}, scratch.data, chunks, width, accumulate);
}

}  // namespace trident::cuda_kernels
