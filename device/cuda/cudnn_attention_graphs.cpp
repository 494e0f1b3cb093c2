#include "device/cuda/cudnn_attention_graphs.h"

#include <fmt/core.h>

#include "core/check.h"

namespace trident {

namespace {

using namespace attention_tensor;

constexpr cudnnDataType_t kFloat = CUDNN_DATA_FLOAT, kInt = CUDNN_DATA_INT32, kBool = CUDNN_DATA_BOOLEAN;

cudnnDataType_t cudnn_type(DType dtype) {
  TRIDENT_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "attention in {} has no graph", to_string(dtype));
  return dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

CudnnDims transposed(CudnnDims x) {
  std::swap(x[2], x[3]);
  return x;
}

// A graph under construction with the extents and operands that both directions share.
class Builder {
 public:
  Builder(const AttentionShape& shape, std::string_view direction)
      : shape(shape),
        graph(fmt::format("attention {} {}", direction, describe(shape))),
        type(cudnn_type(shape.dtype)),
        queries{shape.batch, shape.query_heads, shape.query_length, shape.head_dim},
        keys{shape.batch, shape.kv_heads, shape.key_length, shape.head_dim},
        scores{shape.batch, shape.query_heads, shape.query_length, shape.key_length},
        rows{shape.batch, shape.query_heads, shape.query_length, 1} {
    scale = graph.scalar(kScale, kFloat);
    if (causal_mask_hides(shape)) minus_infinity = graph.scalar(kMinusInfinity, kFloat);
  }

  CudnnTensor query_tensor(std::int64_t uid) { return graph.memory(uid, type, queries, dense_strides(queries)); }
  CudnnTensor key_tensor(std::int64_t uid) { return graph.memory(uid, type, keys, dense_strides(keys)); }
  // [B,K,D,Sk] on the memory of [B,K,Sk,D].
  CudnnTensor transposed_key_tensor(std::int64_t uid) {
    return graph.memory(uid, type, transposed(keys), transposed(dense_strides(keys)));
  }
  CudnnTensor row_tensor(std::int64_t uid) { return graph.memory(uid, kFloat, rows, dense_strides(rows)); }

  CudnnTensor virtual_scores(cudnnDataType_t t = kFloat) { return graph.intermediate(t, scores); }
  CudnnTensor virtual_rows() { return graph.intermediate(kFloat, rows); }

  // q k^T * scale.
  CudnnTensor scaled_scores(CudnnTensor q, CudnnTensor k_transposed) {
    const CudnnTensor raw = graph.matmul(q, k_transposed, virtual_scores());
    return graph.pointwise(CUDNN_POINTWISE_MUL, raw, scale, virtual_scores());
  }

  // Returns tanh(score / softcap) of a scaled score, whose multiple by softcap takes its place.
  CudnnTensor bounded(CudnnTensor x, CudnnTensor* part) {
    if (shape.softcap == 0) return x;
    const CudnnTensor softcap = graph.scalar(kSoftcap, kFloat);
    const CudnnTensor ratio = graph.pointwise(CUDNN_POINTWISE_DIV, x, softcap, virtual_scores());
    *part = graph.pointwise(CUDNN_POINTWISE_TANH_FWD, ratio, {}, virtual_scores());
    return graph.pointwise(CUDNN_POINTWISE_MUL, *part, softcap, virtual_scores());
  }

  // -infinity where a key's position is above the query's, query + shift >= key, or below the first that the query sees.
  CudnnTensor causal_mask(CudnnTensor x) {
    if (!causal_mask_hides(shape)) return x;
    CudnnTensor row = graph.index(x, 2, virtual_scores(kInt));
    const CudnnTensor column = graph.index(x, 3, virtual_scores(kInt));
    if (shape.query_offset != shape.key_offset)
      row = graph.pointwise(CUDNN_POINTWISE_ADD, row, graph.scalar(kShift, kInt), virtual_scores(kInt), {}, kInt);
    const CudnnTensor visible = is_at_least(row, column);
    if (shape.interval > 0) {
      const CudnnDims of_sample{shape.batch, 1, shape.query_length, 1};
      const CudnnTensor first = graph.memory(kFirstKey, kInt, of_sample, dense_strides(of_sample));
      const CudnnTensor from_first = is_at_least(column, first);
      x = graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, minus_infinity, virtual_scores(), from_first);
    }
    return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, minus_infinity, virtual_scores(), visible);
  }

  CudnnTensor is_at_least(CudnnTensor a, CudnnTensor b) {
    return graph.pointwise(CUDNN_POINTWISE_CMP_GE, a, b, virtual_scores(kBool), {}, kBool);
  }

  const AttentionShape& shape;
  CudnnGraph graph;
  const cudnnDataType_t type;
  const CudnnDims queries, keys, scores, rows;
  CudnnTensor scale, minus_infinity;
};

}  // namespace

bool causal_mask_hides(const AttentionShape& s) {
  return s.interval > 0 || (s.causal && s.key_offset + s.key_length - 1 > s.query_offset);
}

std::string describe(const AttentionShape& s) {
  const bool offsets = s.causal && (s.query_offset != 0 || s.key_offset != 0);
  return fmt::format("B{} N{} K{} Sq{} Sk{} D{} {}{}{} {}", s.batch, s.query_heads, s.kv_heads, s.query_length, s.key_length,
                     s.head_dim, s.interval > 0 ? "intervals" : s.causal ? "causal" : "full",
                     s.softcap > 0 ? fmt::format(" softcap {}", s.softcap) : "",
                     offsets ? fmt::format(" offsets {} {}", s.query_offset, s.key_offset) : "", to_string(s.dtype));
}

CudnnGraph attention_forward_graph(const AttentionShape& shape) {
  Builder b(shape, "forward");
  CudnnGraph& g = b.graph;
  const CudnnTensor q = b.query_tensor(kQ), k = b.transposed_key_tensor(kK), v = b.key_tensor(kV), out = b.query_tensor(kOut);
  CudnnTensor part;
  const CudnnTensor x = b.causal_mask(b.bounded(b.scaled_scores(q, k), &part));

  const CudnnTensor largest = g.reduce(CUDNN_REDUCE_TENSOR_MAX, x, b.virtual_rows());
  const CudnnTensor lowered = g.pointwise(CUDNN_POINTWISE_SUB, x, largest, b.virtual_scores());
  const CudnnTensor power = g.pointwise(CUDNN_POINTWISE_EXP, lowered, {}, b.virtual_scores());
  const CudnnTensor sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, power, b.virtual_rows());
  const CudnnTensor log_sum = g.pointwise(CUDNN_POINTWISE_LOG, sum, {}, b.virtual_rows());
  g.pointwise(CUDNN_POINTWISE_ADD, largest, log_sum, b.row_tensor(kLse));
  const CudnnTensor p = g.pointwise(CUDNN_POINTWISE_DIV, power, sum, b.virtual_scores(b.type));
  g.matmul(p, v, out);
  return std::move(b.graph);
}

namespace {

// result[B,K,Sk,D] = x^T[B,N,Sk,Sq] y[B,N,Sq,D], the N/K query heads of a key head added up.
void key_gradient(Builder& b, CudnnTensor x, CudnnTensor y, CudnnTensor result) {
  const CudnnDims across{b.scores[0], b.scores[1], b.scores[3], b.scores[2]};
  const CudnnTensor x_transposed = b.graph.reshape(x, b.graph.intermediate(b.type, across, transposed(dense_strides(b.scores))));
  if (b.shape.query_heads == b.shape.kv_heads) {
    b.graph.matmul(x_transposed, y, result);
    return;
  }
  const CudnnDims of_every_head{b.keys[0], b.queries[1], b.keys[2], b.keys[3]};
  const CudnnTensor each = b.graph.matmul(x_transposed, y, b.graph.intermediate(b.type, of_every_head));
  b.graph.reduce(CUDNN_REDUCE_TENSOR_ADD, each, result);
}

}  // namespace

CudnnGraph attention_backward_graph(const AttentionShape& shape, Determinism determinism) {
  const bool deterministic = determinism == Determinism::kRequired;
  Builder b(shape, deterministic ? "deterministic backward" : "backward");
  CudnnGraph& g = b.graph;
  const CudnnTensor q = b.query_tensor(kQ), d_out = b.query_tensor(kDOut), out = b.query_tensor(kOut);
  const CudnnTensor k = b.transposed_key_tensor(kK), v = b.transposed_key_tensor(kV);

  // delta = row sums of d_out * out; the factor 1 is where dropout would be.
  const CudnnDims interleaved{b.queries[1] * b.queries[2] * b.queries[3], b.queries[2] * b.queries[3], b.queries[1] * b.queries[3],
                              1};
  const CudnnTensor product = g.pointwise(CUDNN_POINTWISE_MUL, d_out, out, g.intermediate(kFloat, b.queries, interleaved));
  const CudnnTensor row_sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, product, b.virtual_rows());
  const CudnnTensor delta = g.pointwise(CUDNN_POINTWISE_MUL, row_sum, g.scalar(kOne, kFloat), b.row_tensor(kDelta));

  // p = exp(scores - lse), and from it d_v.
  CudnnTensor part;
  const CudnnTensor scores = b.bounded(b.scaled_scores(q, k), &part);
  const CudnnTensor lowered = g.pointwise(CUDNN_POINTWISE_SUB, scores, b.row_tensor(kLse), b.virtual_scores());
  const CudnnTensor p = g.pointwise(CUDNN_POINTWISE_EXP, b.causal_mask(lowered), {}, b.virtual_scores());
  key_gradient(b, p, d_out, b.key_tensor(kDV));

  // d_score = p (d_out v^T - delta) scale, and from it d_k and d_q.
  const CudnnTensor d_p = g.matmul(d_out, v, b.virtual_scores());
  const CudnnTensor centred = g.pointwise(CUDNN_POINTWISE_SUB, d_p, delta, b.virtual_scores());
  const CudnnTensor weighted = g.pointwise(CUDNN_POINTWISE_MUL, centred, p, b.virtual_scores());
  CudnnTensor raw = weighted;
  if (shape.softcap > 0) {
    const CudnnTensor square = g.pointwise(CUDNN_POINTWISE_MUL, part, part, b.virtual_scores());
    const CudnnTensor less = g.pointwise(CUDNN_POINTWISE_MUL, weighted, square, b.virtual_scores());
    raw = g.pointwise(CUDNN_POINTWISE_SUB, weighted, less, b.virtual_scores());
  }
  const CudnnTensor d_score = g.pointwise(CUDNN_POINTWISE_MUL, raw, b.scale, b.virtual_scores());
  key_gradient(b, d_score, q, b.key_tensor(kDK));

  const CudnnTensor k_rows = g.reshape(k, g.intermediate(kFloat, b.keys));
  const CudnnTensor d_q = b.query_tensor(kDQ);
  if (deterministic) {
    g.matmul(d_score, k_rows, d_q);
  } else {
    const CudnnTensor sum = g.matmul(d_score, k_rows, g.memory(kDQSum, kFloat, b.queries, dense_strides(b.queries)));
    g.pointwise(CUDNN_POINTWISE_IDENTITY, sum, {}, d_q);
  }
  return std::move(b.graph);
}

}  // namespace trident
