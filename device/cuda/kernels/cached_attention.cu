// A block for each row of a head, which looks at as many keys as its position says, 128 at a time: a warp for each score, then a
// thread for each column of the values. Softmax is online (Milakov and Gimelshein 2018). Sums have a fixed order.
#include "device/cuda/kernels/cached_attention.h"
#include "device/cuda/kernels/dispatch.cuh"
#include "device/cuda/kernels/team.cuh"

namespace trident::cuda_kernels {

namespace {

constexpr int kKeys = 128;  // of a tile; as many threads
constexpr int kWarps = kKeys / kWarp;
constexpr int kSamples = 64;  // of a launch: where each begins is among the kernel's arguments

struct FirstPositions {
  I at[kSamples];
};

// scores[j] of `count` keys, before the barrier that who reads them needs.
template <class T>
__device__ __forceinline__ void score_keys(float* scores, const float* query, const T* keys, int count, I width,
                                           const CachedAttentionExtents& s) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int j = warp; j < count; j += kWarps) {
    float sum = 0.0f;
    for (I c = lane; c < width; c += kWarp) sum = __fmaf_rn(query[c], to_float(keys[j * width + c]), sum);
    sum = reduce_warp<Sum>(sum);
    if (lane == 0) scores[j] = s.softcap > 0.0f ? tanhf(sum * s.scale / s.softcap) * s.softcap : sum * s.scale;
  }
}

// blockIdx.x: row of [B, N, Sq].
template <class T>
__global__ void __launch_bounds__(kKeys)
    cached_attention_kernel(T* out, float* lse, const T* q, const T* k, const T* v, CachedAttentionExtents s,
                            FirstPositions first) {
  __shared__ float p[kKeys];
  const int thread = static_cast<int>(threadIdx.x);
  const I width = s.head_dim, row = blockIdx.x, head = row / s.query_length, kv = head / (s.query_heads / s.kv_heads);
  const I position = first.at[head / s.query_heads] + row % s.query_length;
  const I keys_end = min(s.key_length, position + 1);
  const I keys_begin =
      s.first_key == nullptr ? 0 : max(I{0}, I{s.first_key[head / s.query_heads * s.query_length + row % s.query_length]});
  const T *keys = k + kv * s.key_length * width, *values = v + kv * s.key_length * width;
  float* const query = dynamic_shared<float>();
  float* const acc = query + width;  // a column belongs to one thread
  for (I c = thread; c < width; c += kKeys) {
    query[c] = to_float(q[row * width + c]);
    acc[c] = 0.0f;
  }
  __syncthreads();

  float largest = Largest::none(), total = 0.0f;
  for (I key = keys_begin; key < keys_end; key += kKeys) {
    const int count = static_cast<int>(min(I{kKeys}, keys_end - key));
    score_keys(p, query, keys + key * width, count, width, s);
    __syncthreads();
    const float score = thread < count ? p[thread] : Largest::none();
    float most[1] = {score};
    reduce_block<Largest>(most);
    const float new_largest = fmaxf(largest, most[0]);
    const float rescale = new_largest == largest ? 1.0f : expf(largest - new_largest);
    p[thread] = thread < count ? expf(score - new_largest) : 0.0f;
    float sum[1] = {p[thread]};
    reduce_block<Sum>(sum);  // and all of p is there
    total = total * rescale + sum[0];
    largest = new_largest;
    for (I c = thread; c < width; c += kKeys) {
      float x = acc[c] * rescale;
      for (int j = 0; j < count; ++j) x = __fmaf_rn(p[j], to_float(values[(key + j) * width + c]), x);
      acc[c] = x;
    }
    __syncthreads();  // p is written anew
  }

  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;  // 0: there are no keys
  for (I c = thread; c < width; c += kKeys) from_float(out[row * width + c], acc[c] * inverse);
  if (thread == 0) lse[row] = largest + logf(total);
}

template <class T>
void attend(cudaStream_t stream, T* out, float* lse, const T* q, const T* k, const T* v, const CachedAttentionExtents& s,
            const I* first) {
  const I rows = s.query_heads * s.query_length, cached = s.kv_heads * s.key_length;  // of a sample
  for (I b = 0; b < s.batch; b += kSamples) {
    const I samples = s.batch - b < kSamples ? s.batch - b : kSamples;
    FirstPositions positions{};
    for (I i = 0; i < samples; ++i) positions.at[i] = first[b + i];
    CachedAttentionExtents part = s;
    if (s.first_key != nullptr) part.first_key = s.first_key + b * s.query_length;
    launch("cached_attention", listed<cached_attention_kernel<T>>(),
           {.blocks = {grid_size(samples * rows)},
            .threads = {kKeys},
            .shared_bytes = static_cast<std::size_t>(2 * s.head_dim) * sizeof(float)},
           stream, out + b * rows * s.head_dim, lse + b * rows, q + b * rows * s.head_dim, k + b * cached * s.head_dim,
           v + b * cached * s.head_dim, part, positions);
  }
}

}  // namespace

void cached_attention(cudaStream_t stream, RowType t, void* out, float* lse, const void* q, const void* k, const void* v,
                      const CachedAttentionExtents& extents, const I* first) {
  with_type(t, [&](auto* type) { attend(stream, as(out, type), lse, as(q, type), as(k, type), as(v, type), extents, first); });
}

}  // namespace trident::cuda_kernels
