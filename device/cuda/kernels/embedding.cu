#include <cstdint>

#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

namespace {

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    embedding_forward_kernel(T* out, const std::int32_t* tokens, const T* table, I width, I first_row, I table_rows) {
  const I row = tokens[blockIdx.x] - first_row;
  const bool here = row >= 0 && row < table_rows;
  T* const to = out + I{blockIdx.x} * width;
  Packed<T, n> unit{};
  for (I i = I{threadIdx.x} * n; i < width; i += I{blockDim.x} * n) {
    if (here) unit = load_packed<n>(table + row * width + i);
    store_packed(to + i, unit);
  }
}

// ---- backward: rows that share a token are added in their order, by one thread per column
//
// Table rows are dealt to buckets by a hash. A block lists the tokens of its bucket in order, as many as fit, sorts the list by
// table row, keeping the order within a row, and adds up each row's gradients in registers, from the table's value on.
constexpr int kListed = 1024;
constexpr int kTokensOfThread = 8;  // that a thread looks at in a row
constexpr int kBatch = 8;           // gradients loaded before the first is added

struct Listed {
  std::int32_t row;    // of the table
  std::int32_t place;  // of the token
};

__device__ __forceinline__ unsigned bucket_of(I row, unsigned buckets) {
  return ((static_cast<unsigned>(row) * 2654435769u) >> 12) % buckets;  // Fibonacci hashing (Knuth): neighbours part
}

// The sum of `x` over the threads before this one and, in `all`, over the block.
__device__ __forceinline__ int sum_before(int x, int& all) {
  __shared__ int of_warp[kMaxThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  int before = x;
  TRIDENT_UNROLL
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(kAllOfWarp, before, step);
    if (lane >= step) before += other;
  }
  if (lane == kWarp - 1) of_warp[warp] = before;
  __syncthreads();
  int earlier = 0;
  all = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    if (w == warp) earlier = all;
    all += of_warp[w];
  }
  __syncthreads();
  return earlier + before - x;
}

// Sorts by table row; equal rows keep their order.
__device__ __forceinline__ void sort_list(Listed* sorted, const Listed* list, int count) {
  for (int e = static_cast<int>(threadIdx.x); e < count; e += static_cast<int>(blockDim.x)) {
    const Listed mine = list[e];
    int rank = 0;
    for (int f = 0; f < count; ++f) rank += list[f].row < mine.row || (list[f].row == mine.row && f < e) ? 1 : 0;
    sorted[rank] = mine;
  }
  __syncthreads();
}

// Adds the gradients of a sorted list to the table, for the vector of columns at `column`.
template <class T, int n>
__device__ __forceinline__ void add_listed(float* d_table, const T* d_out, const Listed* sorted, int count, I width, I column) {
  using Rows = RowBodies<n>;
  typename Rows::RowVec sum{};
  for (int first = 0; first < count; first += kBatch) {
    Packed<T, n> gradient[kBatch];
    TRIDENT_UNROLL
    for (int k = 0; k < kBatch; ++k)
      if (first + k < count) gradient[k] = load_packed<n>(d_out + sorted[first + k].place * width + column);
    TRIDENT_UNROLL
    for (int k = 0; k < kBatch; ++k) {
      const int e = first + k;
      if (e >= count) break;
      const I row = sorted[e].row;
      float* const to = d_table + row * width + column;
      if (e == 0 || sorted[e - 1].row != row) sum = Rows::load(to, AllLanes{});
      sum = sum + gradient[k].lanes();
      if (e + 1 == count || sorted[e + 1].row != row) Rows::store(to, sum, AllLanes{});
    }
  }
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 2)
    embedding_backward_kernel(float* d_table, const T* d_out, const std::int32_t* tokens, I rows, I width, I first_row,
                              I table_rows) {
  __shared__ Listed list[kListed], sorted[kListed];
  const I column = (I{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  int listed = 0;
  const auto add_list = [&] {
    __syncthreads();
    sort_list(sorted, list, listed);
    if (column < width) add_listed<T, n>(d_table, d_out, sorted, listed, width, column);
    listed = 0;
    __syncthreads();  // the list is written again
  };
  const I looked_at = I{blockDim.x} * kTokensOfThread;
  for (I start = 0; start < rows; start += looked_at) {
    const I mine = start + I{threadIdx.x} * kTokensOfThread;
    unsigned found = 0;
    std::int32_t row[kTokensOfThread];
    TRIDENT_UNROLL
    for (int k = 0; k < kTokensOfThread; ++k) {
      const I at = mine + k < rows ? tokens[mine + k] - first_row : -1;
      row[k] = static_cast<std::int32_t>(at);
      if (at >= 0 && at < table_rows && bucket_of(at, gridDim.x) == blockIdx.x) found |= 1u << k;
    }
    int all = 0;
    int before = sum_before(__popc(found), all);
    // Normally one turn; more when the bucket's tokens do not fit in the list.
    for (int done = 0; done < all;) {
      const int taken = min(all - done, kListed - listed);
      TRIDENT_UNROLL
      for (int k = 0; k < kTokensOfThread; ++k) {
        if ((found >> k & 1u) == 0) continue;
        const int number = before + __popc(found & ((1u << k) - 1u)) - done;
        if (number >= 0 && number < taken) list[listed + number] = {row[k], static_cast<std::int32_t>(mine + k)};
      }
      listed += taken;
      done += taken;
      if (listed == kListed) add_list();
    }
  }
  add_list();
}

}  // namespace

void embedding_forward(Stream stream, RowType t, void* out, const std::int32_t* tokens, const void* table, I rows, I width,
                       I first_row, I table_rows) {
  with_moved_type(t, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    with_lanes<T>(are_aligned({out, table}, width * bytes_of(t)), [&](auto n) {
      launch("embedding_forward", listed<embedding_forward_kernel<T, n>>(),
             {.blocks = {grid_size(rows)}, .threads = {threads_for(divide_up(width, n))}}, stream, as(out, type), tokens,
             as(table, type), width, first_row, table_rows);
    });
  });
}

void embedding_backward(Stream stream, RowType t, float* d_table, const void* d_out, const std::int32_t* tokens, I rows, I width,
                        I first_row, I table_rows) {
  constexpr I kTokensOfBucket = 16, kBuckets = 1024;  // on average; at most
  if (width == 0) return;
  with_instance(t, {d_table, d_out}, width * bytes_of(t), [&]<class T>(T* type, auto n) {
    const unsigned threads = threads_for(max(divide_up(width, n), divide_up(rows, kTokensOfThread)));
    launch("embedding_backward", listed<embedding_backward_kernel<T, n>>(),
           {.blocks = {grid_size(min(divide_up(rows, kTokensOfBucket), kBuckets)), grid_size(divide_up(width, I{threads} * n))},
            .threads = {threads}},
           stream, d_table, as(d_out, type), tokens, rows, width, first_row, table_rows);
  });
}

}  // namespace trident::cuda_kernels
