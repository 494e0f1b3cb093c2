// Attention in tiles (Dao et al. 2022, "FlashAttention") with plain FMAs: a block of 64 threads works on 32 queries against 32 keys
// at a time, every thread on 4 x 4 of a 32 x 32 product. Rows longer than a group of column chunks are cut over blockIdx.z, which
// computes the scores again. Sums run over keys (or heads and queries) in ascending order in one block, so nothing depends on
// timing.
#include "device/cuda/kernels/attention_f32.h"
#include "device/cuda/kernels/lanes.cuh"

namespace trident::cuda_kernels {

namespace {

constexpr int kTile = 32;          // queries, keys and columns of a tile
constexpr int kPitch = kTile + 1;  // a column of a tile lies in 32 banks
constexpr int kSide = 8;           // threads along either side of a product
constexpr int kThreads = kSide * kSide;
constexpr int kEach = kTile / kSide;  // rows and columns of a thread: first + 8 i
// On one processor at a time: says that a thread may have 255 registers.
constexpr int kBlocksAtLeast = 4;
constexpr unsigned kAllLanes = 0xffffffffu;

using Tile = float[kTile * kPitch];
using Micro = float[kEach][kEach];

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }
__device__ __forceinline__ int row_of_thread(int i) { return static_cast<int>(threadIdx.x) / kSide + kSide * i; }
__device__ __forceinline__ int column_of_thread(int j) { return static_cast<int>(threadIdx.x) % kSide + kSide * j; }
__device__ __forceinline__ int rows_in_tile(I first, I length) { return static_cast<int>(min(I{kTile}, length - first)); }

__device__ __forceinline__ void zero(Micro& x) {
  TRIDENT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    TRIDENT_UNROLL
    for (int j = 0; j < kEach; ++j) x[i][j] = 0.0f;
  }
}

// Rows first_row .. of x [length, width], columns first_column ..; zero beyond them.
template <class T>
__device__ __forceinline__ void load_tile(Tile& tile, const T* x, I first_row, I length, I first_column, I width) {
  for (int at = static_cast<int>(threadIdx.x); at < kTile * kTile; at += kThreads) {
    const int row = at / kTile, column = at % kTile;
    const bool within = first_row + row < length && first_column + column < width;
    tile[row * kPitch + column] = within ? to_float(x[(first_row + row) * width + first_column + column]) : 0.0f;
  }
}

// to[i][j] += sum over k < depth of a(row i, k) b(k, column j), where a(r, k) = a[r * kRow + k * kDepthA].
template <int kRow, int kDepthA, int kDepthB, int kColumn>
__device__ __forceinline__ void multiply_add(Micro& to, const Tile& a, const Tile& b, int depth) {
  for (int k = 0; k < depth; ++k) {
    float left[kEach], right[kEach];
    TRIDENT_UNROLL
    for (int i = 0; i < kEach; ++i) left[i] = a[row_of_thread(i) * kRow + k * kDepthA];
    TRIDENT_UNROLL
    for (int j = 0; j < kEach; ++j) right[j] = b[k * kDepthB + column_of_thread(j) * kColumn];
    TRIDENT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      TRIDENT_UNROLL
      for (int j = 0; j < kEach; ++j) to[i][j] = __fmaf_rn(left[i], right[j], to[i][j]);
    }
  }
}
// a b^T, a b and a^T b.
__device__ __forceinline__ void add_a_bt(Micro& to, const Tile& a, const Tile& b, int depth) {
  multiply_add<kPitch, 1, 1, kPitch>(to, a, b, depth);
}
__device__ __forceinline__ void add_a_b(Micro& to, const Tile& a, const Tile& b, int depth) {
  multiply_add<kPitch, 1, kPitch, 1>(to, a, b, depth);
}
__device__ __forceinline__ void add_at_b(Micro& to, const Tile& a, const Tile& b, int depth) {
  multiply_add<1, kPitch, kPitch, 1>(to, a, b, depth);
}

// to = x y^T over the whole width: rows of x from first_x, of y from first_y. Every thread comes; ends with a barrier.
template <class T>
__device__ __forceinline__ void product_of_rows(Micro& to, Tile& a, Tile& b, const T* x, I first_x, I length_x, const T* y,
                                                I first_y, I length_y, I width) {
  zero(to);
  for (I column = 0; column < width; column += kTile) {
    load_tile(a, x, first_x, length_x, column, width);
    load_tile(b, y, first_y, length_y, column, width);
    __syncthreads();
    if (first_x + row_of_thread(0) < length_x) add_a_bt(to, a, b, rows_in_tile(column, width));
    __syncthreads();
  }
}

__device__ __forceinline__ void store_micro(Tile& tile, const Micro& x) {
  TRIDENT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    TRIDENT_UNROLL
    for (int j = 0; j < kEach; ++j) tile[row_of_thread(i) * kPitch + column_of_thread(j)] = x[i][j];
  }
}

template <class T, int kChunks>
__device__ __forceinline__ void store_rows(T* to, const Micro (&sums)[kChunks], const float (&factor)[kEach], I first_row, I length,
                                           I first_column, I width) {
  TRIDENT_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    TRIDENT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      TRIDENT_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const I row = first_row + row_of_thread(i), column = first_column + c * kTile + column_of_thread(j);
        if (row < length && column < width) from_float(to[row * width + column], sums[c][i][j] * factor[i]);
      }
    }
  }
}

// The keys that queries up to `last` see.
__device__ __forceinline__ I keys_seen(const AttentionExtents& s, I last) {
  return s.causal != 0 ? max(I{0}, min(s.key_length, last + s.shift + 1)) : s.key_length;
}
__device__ __forceinline__ bool sees(const AttentionExtents& s, I query, I key) {
  return query < s.query_length && key < s.key_length && (s.causal == 0 || key <= query + s.shift);
}
// Kernels move first_key to their sample. No later query sees a key before this one.
__device__ __forceinline__ I first_seen(const AttentionExtents& s, I query) {
  return s.first_key == nullptr || query >= s.query_length ? I{0} : s.first_key[query] - s.key_offset;
}
__device__ __forceinline__ I first_tile_seen(const AttentionExtents& s, I query) {
  return max(I{0}, first_seen(s, query)) / kTile * kTile;
}
__device__ __forceinline__ float bounded_score(const AttentionExtents& s, float score) {
  return s.softcap > 0.0f ? tanhf(score / s.softcap) * s.softcap : score;
}

// Over the 8 threads that share rows.
__device__ __forceinline__ float row_maximum(float x) {
  TRIDENT_UNROLL
  for (int lanes = 1; lanes < kSide; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}
__device__ __forceinline__ float row_sum(float x) {
  TRIDENT_UNROLL
  for (int lanes = 1; lanes < kSide; lanes *= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

// Scores become p relative to the largest so far; sums so far are brought to the new largest.
template <int kChunks>
__device__ __forceinline__ void softmax_step(const AttentionExtents& s, Micro& x, float (&largest)[kEach], float (&sum)[kEach],
                                             Micro (&acc)[kChunks], I first_query, I first_key) {
  TRIDENT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const I query = first_query + row_of_thread(i), first = first_seen(s, query);
    float new_largest = largest[i];
    TRIDENT_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const I key = first_key + column_of_thread(j);
      x[i][j] = key >= first && sees(s, query, key) ? bounded_score(s, x[i][j] * s.scale) : minus_infinity();
      new_largest = fmaxf(new_largest, x[i][j]);
    }
    new_largest = row_maximum(new_largest);
    const float rescale = new_largest == largest[i] ? 1.0f : expf(largest[i] - new_largest);  // also while both are -infinity
    largest[i] = new_largest;
    sum[i] *= rescale;
    TRIDENT_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const I key = first_key + column_of_thread(j);
      x[i][j] = key >= first && sees(s, query, key) ? expf(x[i][j] - new_largest) : 0.0f;
      sum[i] += x[i][j];
    }
    TRIDENT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      TRIDENT_UNROLL
      for (int j = 0; j < kEach; ++j) acc[c][i][j] *= rescale;
    }
  }
}

// blockIdx: (head, tile of queries, group of columns).
template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads, kBlocksAtLeast)
    attention_f32_forward_kernel(T* out, float* lse, const T* q, const T* k, const T* v, AttentionExtents s) {
  __shared__ Tile a, b, p;
  const I head = blockIdx.x, kv = head / (s.query_heads / s.kv_heads), width = s.head_dim;
  const I first_query = I{blockIdx.y} * kTile, first_column = I{blockIdx.z} * kChunks * kTile;
  const T *queries = q + head * s.query_length * width, *keys = k + kv * s.key_length * width,
          *values = v + kv * s.key_length * width;
  if (s.first_key != nullptr) s.first_key += head / s.query_heads * s.query_length;
  Micro acc[kChunks];
  float largest[kEach], sum[kEach];
  TRIDENT_UNROLL
  for (int c = 0; c < kChunks; ++c) zero(acc[c]);
  TRIDENT_UNROLL
  for (int i = 0; i < kEach; ++i) largest[i] = minus_infinity(), sum[i] = 0.0f;

  const I keys_end = keys_seen(s, min(first_query + kTile, s.query_length) - 1);
  for (I key = first_tile_seen(s, first_query); key < keys_end; key += kTile) {
    Micro x;
    product_of_rows(x, a, b, queries, first_query, s.query_length, keys, key, s.key_length, width);
    softmax_step(s, x, largest, sum, acc, first_query, key);
    store_micro(p, x);
    TRIDENT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      if (first_column + c * kTile >= width) continue;
      load_tile(b, values, key, s.key_length, first_column + c * kTile, width);
      __syncthreads();
      if (first_query + row_of_thread(0) < s.query_length) add_a_b(acc[c], p, b, rows_in_tile(key, keys_end));
      __syncthreads();
    }
  }

  float inverse[kEach];
  TRIDENT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const float total = row_sum(sum[i]);
    const I query = first_query + row_of_thread(i);
    inverse[i] = total == 0.0f ? 0.0f : 1.0f / total;  // 0: sees no key, and its largest is -infinity
    if (blockIdx.z == 0 && column_of_thread(0) == 0 && query < s.query_length)
      lse[head * s.query_length + query] = largest[i] + logf(total);
  }
  store_rows(out + head * s.query_length * width, acc, inverse, first_query, s.query_length, first_column, width);
}

// The backward kernels read these of one head.
template <class T>
struct HeadInputs {
  const T *q, *d_out, *k, *v;
  const float *lse, *delta;
};

// Scores and d_p of a tile become p and d_score.
template <class T>
__device__ __forceinline__ void scores_backward(const AttentionExtents& s, const HeadInputs<T>& head, Micro& p, Micro& d_score,
                                                Tile& a, Tile& b, I first_query, I first_key) {
  product_of_rows(p, a, b, head.q, first_query, s.query_length, head.k, first_key, s.key_length, s.head_dim);
  product_of_rows(d_score, a, b, head.d_out, first_query, s.query_length, head.v, first_key, s.key_length, s.head_dim);
  TRIDENT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const I query = first_query + row_of_thread(i), first = first_seen(s, query);
    const float lse = query < s.query_length ? head.lse[query] : 0.0f, delta = query < s.query_length ? head.delta[query] : 0.0f;
    TRIDENT_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const I key = first_key + column_of_thread(j);
      const float score = bounded_score(s, p[i][j] * s.scale);
      p[i][j] = key >= first && sees(s, query, key) ? expf(score - lse) : 0.0f;
      d_score[i][j] = p[i][j] * (d_score[i][j] - delta) * s.scale;
      if (s.softcap > 0.0f) d_score[i][j] *= 1.0f - score / s.softcap * (score / s.softcap);
    }
  }
}

// delta = row sums of d_out * out, of one tile of queries; every column group of a tile writes the same. Whoever reads it comes
// behind a barrier of product_of_rows.
template <class T>
__device__ __forceinline__ void delta_of_tile(const AttentionExtents& s, float* delta, const T* d_out, const T* out, Tile& a,
                                              Tile& b, I first_query) {
  float sum = 0.0f;
  const int row = static_cast<int>(threadIdx.x);
  for (I column = 0; column < s.head_dim; column += kTile) {
    load_tile(a, d_out, first_query, s.query_length, column, s.head_dim);
    load_tile(b, out, first_query, s.query_length, column, s.head_dim);
    __syncthreads();
    if (row < kTile)
      for (int c = 0; c < kTile; ++c) sum = __fmaf_rn(a[row * kPitch + c], b[row * kPitch + c], sum);
    __syncthreads();
  }
  if (row < kTile && first_query + row < s.query_length) delta[first_query + row] = sum;
}

// d_q, and delta for the other kernel. blockIdx as forward.
template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads, kBlocksAtLeast)
    attention_f32_backward_q_kernel(T* d_q, float* delta, const T* d_out, const T* out, const T* q, const T* k, const T* v,
                                    const float* lse, AttentionExtents s) {
  __shared__ Tile a, b, d_scores;
  const I head = blockIdx.x, kv = head / (s.query_heads / s.kv_heads), width = s.head_dim;
  const I first_query = I{blockIdx.y} * kTile, first_column = I{blockIdx.z} * kChunks * kTile;
  const I at_q = head * s.query_length * width, at_k = kv * s.key_length * width;
  float* const own_delta = delta + head * s.query_length;
  if (s.first_key != nullptr) s.first_key += head / s.query_heads * s.query_length;
  delta_of_tile(s, own_delta, d_out + at_q, out + at_q, a, b, first_query);
  const HeadInputs<T> inputs{q + at_q, d_out + at_q, k + at_k, v + at_k, lse + head * s.query_length, own_delta};
  Micro acc[kChunks];
  TRIDENT_UNROLL
  for (int c = 0; c < kChunks; ++c) zero(acc[c]);

  const I keys_end = keys_seen(s, min(first_query + kTile, s.query_length) - 1);
  for (I key = first_tile_seen(s, first_query); key < keys_end; key += kTile) {
    Micro p, d_score;
    scores_backward(s, inputs, p, d_score, a, b, first_query, key);
    store_micro(d_scores, d_score);
    TRIDENT_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      if (first_column + c * kTile >= width) continue;
      load_tile(b, inputs.k, key, s.key_length, first_column + c * kTile, width);
      __syncthreads();
      if (first_query + row_of_thread(0) < s.query_length) add_a_b(acc[c], d_scores, b, rows_in_tile(key, keys_end));
      __syncthreads();
    }
  }
  const float one[kEach] = {1.0f, 1.0f, 1.0f, 1.0f};
  store_rows(d_q + at_q, acc, one, first_query, s.query_length, first_column, width);
}

// d_k and d_v of a key/value head, over its query heads. blockIdx: (key/value head, tile of keys, group of columns).
template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads, kBlocksAtLeast)
    attention_f32_backward_kv_kernel(T* d_k, T* d_v, const float* delta, const T* d_out, const T* q, const T* k, const T* v,
                                     const float* lse, AttentionExtents s) {
  __shared__ Tile a, b, ps, d_scores;
  const I kv = blockIdx.x, group = s.query_heads / s.kv_heads, width = s.head_dim;
  const I first_key = I{blockIdx.y} * kTile, first_column = I{blockIdx.z} * kChunks * kTile, at_k = kv * s.key_length * width;
  Micro acc_k[kChunks], acc_v[kChunks];
  TRIDENT_UNROLL
  for (int c = 0; c < kChunks; ++c) zero(acc_k[c]), zero(acc_v[c]);

  if (s.first_key != nullptr) s.first_key += kv / s.kv_heads * s.query_length;
  const I first_query = s.causal != 0 ? max(I{0}, first_key - s.shift) : 0;
  for (I head = kv * group; head < (kv + 1) * group; ++head) {
    const I at_q = head * s.query_length * width;
    const HeadInputs<T> inputs{
        q + at_q, d_out + at_q, k + at_k, v + at_k, lse + head * s.query_length, delta + head * s.query_length};
    for (I query = first_query / kTile * kTile; query < s.query_length; query += kTile) {
      if (first_seen(s, query) >= first_key + kTile) break;
      Micro p, d_score;
      scores_backward(s, inputs, p, d_score, a, b, query, first_key);
      store_micro(ps, p);
      store_micro(d_scores, d_score);
      TRIDENT_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        if (first_column + c * kTile >= width) continue;
        load_tile(a, inputs.d_out, query, s.query_length, first_column + c * kTile, width);
        load_tile(b, inputs.q, query, s.query_length, first_column + c * kTile, width);
        __syncthreads();
        if (first_key + row_of_thread(0) < s.key_length) {
          add_at_b(acc_v[c], ps, a, rows_in_tile(query, s.query_length));
          add_at_b(acc_k[c], d_scores, b, rows_in_tile(query, s.query_length));
        }
        __syncthreads();
      }
    }
  }
  const float one[kEach] = {1.0f, 1.0f, 1.0f, 1.0f};
  store_rows(d_k + at_k, acc_k, one, first_key, s.key_length, first_column, width);
  store_rows(d_v + at_k, acc_v, one, first_key, s.key_length, first_column, width);
}

unsigned parts(I length, I part) { return static_cast<unsigned>((length + part - 1) / part); }

// Blocks for `heads` heads with `rows` rows each.
template <int kChunks>
LaunchShape launch_shape(const AttentionExtents& s, I heads, I rows) {
  return {.blocks = {static_cast<unsigned>(s.batch * heads), parts(rows, kTile), parts(s.head_dim, kChunks * kTile)},
          .threads = {kThreads}};
}

template <class T, int kChunks>
void forward(cudaStream_t stream, void* out, float* lse, const void* q, const void* k, const void* v, const AttentionExtents& s) {
  launch("attention_f32_forward", listed<attention_f32_forward_kernel<T, kChunks>>(), launch_shape<kChunks>(s, s.query_heads, s.query_length),
         stream, static_cast<T*>(out), lse, static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), s);
}

template <class T, int kChunks>
void backward(cudaStream_t stream, void* d_q, void* d_k, void* d_v, float* delta, const void* d_out, const void* out, const void* q,
              const void* k, const void* v, const float* lse, const AttentionExtents& s) {
  launch("attention_f32_backward_q", listed<attention_f32_backward_q_kernel<T, kChunks>>(),
         launch_shape<kChunks>(s, s.query_heads, s.query_length), stream, static_cast<T*>(d_q), delta, static_cast<const T*>(d_out),
         static_cast<const T*>(out), static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), lse, s);
  launch("attention_f32_backward_kv", listed<attention_f32_backward_kv_kernel<T, kChunks>>(),
         launch_shape<kChunks>(s, s.kv_heads, s.key_length), stream, static_cast<T*>(d_k), static_cast<T*>(d_v), delta,
         static_cast<const T*>(d_out), static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), lse, s);
}

// Calls f<T, kChunks>: up to 64 columns in one group, more in groups of 128.
template <class F>
void for_instance(RowType t, I width, F&& f) {
  const bool narrow = width <= 2 * kTile;
  if (t == RowType::kF32)
    narrow ? f.template operator()<float, 2>() : f.template operator()<float, 4>();
  else if (t == RowType::kBF16)
    narrow ? f.template operator()<Bf16, 2>() : f.template operator()<Bf16, 4>();
  else
    narrow ? f.template operator()<F16, 2>() : f.template operator()<F16, 4>();
}

}  // namespace

void attention_f32_forward(cudaStream_t stream, RowType t, void* out, float* lse, const void* q, const void* k, const void* v,
                           const AttentionExtents& s) {
  for_instance(t, s.head_dim, [&]<class T, int kChunks>() { forward<T, kChunks>(stream, out, lse, q, k, v, s); });
}

void attention_f32_backward(cudaStream_t stream, RowType t, void* d_q, void* d_k, void* d_v, float* delta, const void* d_out,
                            const void* out, const void* q, const void* k, const void* v, const float* lse,
                            const AttentionExtents& s) {
  for_instance(t, s.head_dim,
               [&]<class T, int kChunks>() { backward<T, kChunks>(stream, d_q, d_k, d_v, delta, d_out, out, q, k, v, lse, s); });
}

}  // namespace trident::cuda_kernels
