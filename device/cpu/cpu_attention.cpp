#include "device/cpu/cpu_attention.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/int_math.h"
#include "device/arena.h"

namespace trident {

namespace {

// Tiles of 128 x 128: a score tile, its gradient and their 16-bit copies take 192 KB and stay in a core's L2 with the operands.
constexpr std::int64_t kQueryTile = 128, kKeyTile = 128;

// Queries query .. +rows against keys key .. +columns. first_keys: of the sample's queries, or null.
ScoreTile score_tile(const AttentionShape& s, const std::int32_t* first_keys, std::int64_t query, std::int64_t key) {
  ScoreTile tile;
  tile.rows = std::min(kQueryTile, s.query_length - query);
  tile.columns = std::min(kKeyTile, s.key_length - key);
  if (first_keys != nullptr) tile.first_key = first_keys + query;
  tile.key_position = s.key_offset + key;
  tile.scale = s.scale;
  tile.softcap = s.softcap;
  tile.step = s.causal ? 1 : 0;
  tile.first_visible = s.causal ? s.query_offset + query - s.key_offset + 1 - key : tile.columns;
  return tile;
}

// First keys never decrease: the last row sees furthest forwards, the first one furthest back.
bool sees_nothing(const ScoreTile& tile) {
  return tile.first_visible + (tile.rows - 1) * tile.step <= 0 ||
         (tile.first_key != nullptr && tile.first_key[0] >= tile.key_position + tile.columns);
}

// Those of sample b, [Sq], or null where every key up to a query's own is seen.
const std::int32_t* first_keys_of(const AttentionShape& s, ConstTensorView first_key, std::int64_t b) {
  return s.interval == 0 ? nullptr : first_key.as<std::int32_t>() + b * s.query_length;
}

// scores [rows, columns] = queries [rows, D] keys^T, and the same for d_p = d_out v^T.
MatmulShape scores_product(const AttentionShape& s, std::int64_t rows, std::int64_t columns) {
  return {rows, columns, s.head_dim, Transpose::kNo, Transpose::kYes, s.dtype, DType::kF32, Accumulate::kNo};
}
// [rows, D] += p [rows, columns] x [columns, D]: the output, and d_q from d_s.
MatmulShape rows_product(const AttentionShape& s, std::int64_t rows, std::int64_t columns) {
  return {rows, s.head_dim, columns, Transpose::kNo, Transpose::kNo, s.dtype, DType::kF32, Accumulate::kYes};
}
// [columns, D] += p^T [columns, rows] x [rows, D]: d_v from p, d_k from d_s.
MatmulShape columns_product(const AttentionShape& s, std::int64_t rows, std::int64_t columns) {
  return {columns, s.head_dim, rows, Transpose::kYes, Transpose::kNo, s.dtype, DType::kF32, Accumulate::kYes};
}

void zero(float* p, std::int64_t count) { std::memset(p, 0, static_cast<std::size_t>(count) * sizeof(float)); }

}  // namespace

// Where things lie. With f32 tensors p and d_s overwrite the scores and d_p, and the accumulators are the results themselves.
struct CpuAttention::Workspace {
  float *scores, *d_p;
  std::byte *p, *d_s;              // T
  float *acc, *row_max, *row_sum;  // of a query tile, forward
  float *d_k, *d_v;                // of a key tile
  float *d_q, *delta;              // of a group of query heads
  std::byte* product;
  std::int64_t bytes;
};

// One (sample, key/value head) of the backward pass with the query heads that share it.
struct CpuAttention::Backward {
  std::byte *d_q, *d_k, *d_v;
  const std::byte *d_out, *out, *q, *k, *v;
  const float* lse;
  const std::int32_t* first_key;
};

CpuAttention::CpuAttention(OnednnMatmul& matmul, const RowKernels& kernels)
    : matmul_(matmul), kernels_(kernels), rows_(attention_rows(kernels.level)) {}

CpuAttention::Workspace CpuAttention::lay_out(const AttentionShape& s, std::byte* base) {
  ScratchPlan plan;
  // Through an integer: while planning there is no memory yet and base is null.
  const auto take = [&](std::int64_t bytes) {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) +
                                        static_cast<std::uintptr_t>(plan.take(bytes).offset));
  };
  const auto take_floats = [&](std::int64_t count) { return reinterpret_cast<float*>(take(4 * count)); };
  const std::int64_t rows = std::min(kQueryTile, s.query_length), columns = std::min(kKeyTile, s.key_length);
  const bool separate = s.dtype != DType::kF32;
  const std::int64_t queries = s.kv_heads == 0 ? 0 : s.query_heads / s.kv_heads * s.query_length;
  Workspace w{};
  w.scores = take_floats(rows * columns);
  w.d_p = take_floats(rows * columns);
  w.p = separate ? take(rows * columns * size_of(s.dtype)) : reinterpret_cast<std::byte*>(w.scores);
  w.d_s = separate ? take(rows * columns * size_of(s.dtype)) : reinterpret_cast<std::byte*>(w.d_p);
  w.acc = take_floats(rows * s.head_dim);
  w.row_max = take_floats(rows);
  w.row_sum = take_floats(rows);
  w.d_k = take_floats(separate ? columns * s.head_dim : 0);
  w.d_v = take_floats(separate ? columns * s.head_dim : 0);
  w.d_q = take_floats(separate ? queries * s.head_dim : 0);
  w.delta = take_floats(queries);
  w.product = take(0);  // last: its size is known to prepare() alone
  w.bytes = plan.high_water();
  return w;
}

namespace {

// The largest of bytes(product) over the products of full tiles and of the last, shorter ones.
template <class Bytes>
std::int64_t largest_product(const AttentionShape& s, Bytes bytes) {
  std::int64_t largest = 0;
  for (const std::int64_t rows : {std::min(kQueryTile, s.query_length), s.query_length % kQueryTile}) {
    for (const std::int64_t columns : {std::min(kKeyTile, s.key_length), s.key_length % kKeyTile}) {
      if (rows == 0 || columns == 0) continue;
      largest = std::max({largest, bytes(scores_product(s, rows, columns)), bytes(rows_product(s, rows, columns)),
                          bytes(columns_product(s, rows, columns))});
    }
  }
  return largest;
}

}  // namespace

std::int64_t CpuAttention::prepare(const AttentionShape& s) {
  return lay_out(s, nullptr).bytes + largest_product(s, [&](const MatmulShape& product) { return matmul_.prepare(product); });
}

std::int64_t CpuAttention::workspace_bytes(const AttentionShape& s) const {
  return lay_out(s, nullptr).bytes +
         largest_product(s, [&](const MatmulShape& product) { return matmul_.workspace_bytes(product); });
}

void CpuAttention::multiply(const MatmulShape& shape, void* out, const void* a, const void* b, const Workspace& w) {
  matmul_.run(shape, out, a, b, w.product);
}

void CpuAttention::forward(const AttentionShape& s, TensorView out, TensorView lse, ConstTensorView q, ConstTensorView k,
                           ConstTensorView v, ConstTensorView first_key, std::byte* workspace) {
  const Workspace w = lay_out(s, workspace);
  const std::int64_t query_bytes = s.query_length * s.head_dim * size_of(s.dtype);
  const std::int64_t key_bytes = s.key_length * s.head_dim * size_of(s.dtype);
  for (std::int64_t head = 0; head < s.batch * s.query_heads; ++head) {
    const std::int64_t kv = head / (s.query_heads / s.kv_heads);  // exact across samples: query_heads is a multiple of kv_heads
    forward_head(s, out.data() + head * query_bytes, lse.as<float>() + head * s.query_length, q.data() + head * query_bytes,
                 k.data() + kv * key_bytes, v.data() + kv * key_bytes, first_keys_of(s, first_key, head / s.query_heads), w);
  }
}

void CpuAttention::forward_head(const AttentionShape& s, std::byte* out, float* lse, const std::byte* q, const std::byte* k,
                                const std::byte* v, const std::int32_t* first_key, const Workspace& w) {
  const RowType t = row_type(s.dtype);
  const std::int64_t row_bytes = s.head_dim * size_of(s.dtype);
  for (std::int64_t i = 0; i < s.query_length; i += kQueryTile) {
    const std::int64_t rows = std::min(kQueryTile, s.query_length - i);
    std::fill_n(w.row_max, rows, -std::numeric_limits<float>::infinity());
    zero(w.row_sum, rows);
    zero(w.acc, rows * s.head_dim);
    for (std::int64_t j = 0; j < s.key_length; j += kKeyTile) {
      const ScoreTile tile = score_tile(s, first_key, i, j);
      if (sees_nothing(tile)) continue;
      multiply(scores_product(s, rows, tile.columns), w.scores, q + i * row_bytes, k + j * row_bytes, w);
      rows_.softmax_step(t, tile, w.scores, w.p, w.row_max, w.row_sum, w.acc, s.head_dim);
      multiply(rows_product(s, rows, tile.columns), w.acc, w.p, v + j * row_bytes, w);
    }
    rows_.softmax_finish(t, out + i * row_bytes, lse + i, w.acc, w.row_max, w.row_sum, rows, s.head_dim);
  }
}

void CpuAttention::backward(const AttentionShape& s, TensorView d_q, TensorView d_k, TensorView d_v, ConstTensorView d_out,
                            ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView lse,
                            ConstTensorView first_key, std::byte* workspace) {
  const Workspace w = lay_out(s, workspace);
  const std::int64_t queries = s.query_heads / s.kv_heads * s.query_length;  // of a group
  const std::int64_t query_bytes = queries * s.head_dim * size_of(s.dtype);
  const std::int64_t key_bytes = s.key_length * s.head_dim * size_of(s.dtype);
  for (std::int64_t g = 0; g < s.batch * s.kv_heads; ++g) {
    const std::int64_t at_q = g * query_bytes, at_k = g * key_bytes;
    backward_group(s,
                   {d_q.data() + at_q, d_k.data() + at_k, d_v.data() + at_k, d_out.data() + at_q, out.data() + at_q,
                    q.data() + at_q, k.data() + at_k, v.data() + at_k, lse.as<float>() + g * queries,
                    first_keys_of(s, first_key, g / s.kv_heads)},
                   w);
  }
}

void CpuAttention::backward_group(const AttentionShape& s, const Backward& call, const Workspace& workspace) {
  const RowType t = row_type(s.dtype);
  const std::int64_t heads = s.query_heads / s.kv_heads, queries = heads * s.query_length;
  const std::int64_t row_bytes = s.head_dim * size_of(s.dtype);
  const bool direct = s.dtype == DType::kF32;
  Workspace w = workspace;
  if (direct) w.d_q = reinterpret_cast<float*>(call.d_q);
  zero(w.d_q, queries * s.head_dim);
  rows_.delta(t, w.delta, call.d_out, call.out, queries, s.head_dim);
  for (std::int64_t j = 0; j < s.key_length; j += kKeyTile) {
    const std::int64_t elements = std::min(kKeyTile, s.key_length - j) * s.head_dim;
    if (direct) w.d_k = reinterpret_cast<float*>(call.d_k + j * row_bytes);
    if (direct) w.d_v = reinterpret_cast<float*>(call.d_v + j * row_bytes);
    zero(w.d_k, elements);
    zero(w.d_v, elements);
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < s.query_length; i += kQueryTile) backward_tile(s, call, head, i, j, w);
    }
    if (direct) continue;
    kernels_.convert(t, call.d_k + j * row_bytes, RowType::kF32, w.d_k, elements);
    kernels_.convert(t, call.d_v + j * row_bytes, RowType::kF32, w.d_v, elements);
  }
  if (!direct) kernels_.convert(t, call.d_q, RowType::kF32, w.d_q, queries * s.head_dim);
}

void CpuAttention::backward_tile(const AttentionShape& s, const Backward& call, std::int64_t head, std::int64_t first_query,
                                 std::int64_t first_key, const Workspace& w) {
  const ScoreTile tile = score_tile(s, call.first_key, first_query, first_key);
  if (sees_nothing(tile)) return;
  const std::int64_t row_bytes = s.head_dim * size_of(s.dtype);
  const std::int64_t query = head * s.query_length + first_query;
  const std::byte* q = call.q + query * row_bytes;
  const std::byte* d_out = call.d_out + query * row_bytes;
  const std::byte* k = call.k + first_key * row_bytes;
  const std::byte* v = call.v + first_key * row_bytes;
  multiply(scores_product(s, tile.rows, tile.columns), w.scores, q, k, w);
  multiply(scores_product(s, tile.rows, tile.columns), w.d_p, d_out, v, w);
  rows_.softmax_backward(row_type(s.dtype), tile, w.scores, w.d_p, w.p, w.d_s, call.lse + query, w.delta + query);
  multiply(columns_product(s, tile.rows, tile.columns), w.d_v, w.p, d_out, w);
  multiply(columns_product(s, tile.rows, tile.columns), w.d_k, w.d_s, q, w);
  multiply(rows_product(s, tile.rows, tile.columns), w.d_q + query * s.head_dim, w.d_s, k, w);
}

}  // namespace trident
