#include "device/cuda/cudnn_attention.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/int_math.h"
#include "device/cuda/kernels/attention_f32.h"

namespace trident {

namespace {

using namespace attention_tensor;

constexpr std::int64_t kAlignment = 256;  // of what lies in a workspace

cuda_kernels::AttentionExtents extents(const AttentionShape& s, ConstTensorView first_key) {
  return {.batch = s.batch,
          .query_heads = s.query_heads,
          .kv_heads = s.kv_heads,
          .query_length = s.query_length,
          .key_length = s.key_length,
          .head_dim = s.head_dim,
          .shift = s.query_offset - s.key_offset,
          .scale = s.scale,
          .causal = s.causal ? 1 : 0,
          .softcap = s.softcap,
          .key_offset = s.key_offset,
          .first_key = s.interval > 0 ? first_key.as<std::int32_t>() : nullptr};
}

// The scalars of a graph, in host memory while it is executed.
struct Scalars {
  explicit Scalars(const AttentionShape& s)
      : scale(s.scale), softcap(s.softcap), shift(static_cast<std::int32_t>(s.query_offset - s.key_offset)) {}
  float scale, softcap, minus_infinity = -std::numeric_limits<float>::infinity(), one = 1.0f;
  std::int32_t shift;
};

// Tensors by name for one execution: cuDNN refuses a name that the graph does not have.
class Operands {
 public:
  void add(std::int64_t uid, const void* data) {
    uids_[count_] = uid;
    pointers_[count_++] = const_cast<void*>(data);  // the graph says which are written
  }
  void add_scalars(Scalars& scalars, const AttentionShape& s) {
    add(kScale, &scalars.scale);
    if (s.softcap > 0) add(kSoftcap, &scalars.softcap);
    if (!causal_mask_hides(s)) return;
    add(kMinusInfinity, &scalars.minus_infinity);
    if (s.query_offset != s.key_offset) add(kShift, &scalars.shift);
  }
  std::span<const std::int64_t> uids() const { return {uids_.data(), count_}; }
  std::span<void* const> pointers() const { return {pointers_.data(), count_}; }

 private:
  static constexpr std::size_t kMost = 20;
  std::array<std::int64_t, kMost> uids_{};
  std::array<void*, kMost> pointers_{};
  std::size_t count_ = 0;
};

// Bytes of one piece of each kind of tensor.
struct PieceBytes {
  explicit PieceBytes(const AttentionShape& s)
      : queries(s.batch * s.query_heads * s.query_length * s.head_dim * size_of(s.dtype)),
        keys(s.batch * s.kv_heads * s.key_length * s.head_dim * size_of(s.dtype)),
        rows(s.batch * s.query_heads * s.query_length * size_of(DType::kF32)) {}
  std::int64_t queries, keys, rows;
};

}  // namespace

CudnnAttention::CudnnAttention(const CudnnHandle& handle, const CudnnAttentionOptions& options)
    : handle_(handle), options_(options) {}

// ---- planning

const CudnnAttention::Entry* CudnnAttention::find(const AttentionShape& shape) const {
  for (const Entry& entry : entries_)
    if (entry.shape == shape) return &entry;
  return nullptr;
}

const CudnnAttention::Entry& CudnnAttention::prepared(const AttentionShape& shape) const {
  const Entry* entry = find(shape);
  TRIDENT_CHECK(entry != nullptr, "attention {} was not prepared", trident::describe(shape));
  return *entry;
}

CudnnAttention::Pass CudnnAttention::plan(const AttentionShape& shape, AttentionDirection direction) const {
  const bool backward = direction == AttentionDirection::kBackward;
  Pass pass;
  pass.rule = attention_pass(shape, direction, handle_.compute_major(), cudnnGetVersion(), options_);
  if (pass.rule.by_cudnn) {
    pass.plan = CudnnPlan::find(backward ? attention_backward_graph(pass.rule.piece, options_.determinism)
                                         : attention_forward_graph(pass.rule.piece),
                                {.handle = handle_.get()},
                                backward ? options_.determinism : Determinism::kRequired,
                                &pass.rule.why_not);
  }
  const PieceBytes bytes(pass.plan ? pass.rule.piece : shape);
  const auto take = [&](std::int64_t size) {
    const std::int64_t at = pass.workspace_bytes;
    pass.workspace_bytes = round_up(at + size, kAlignment);
    return at;
  };
  if (backward) pass.delta_at = take(bytes.rows);
  if (backward && pass.plan && options_.determinism == Determinism::kNotRequired)
    pass.d_q_sum_at = take(pass.rule.piece.head_dim * bytes.rows);
  pass.plan_at = take(pass.plan ? pass.plan->workspace_bytes() : 0);
  return pass;
}

std::int64_t CudnnAttention::prepare(const AttentionShape& shape) {
  if (find(shape) == nullptr) {
    handle_.use(nullptr);
    entries_.push_back({shape, plan(shape, AttentionDirection::kForward), plan(shape, AttentionDirection::kBackward)});
  }
  return workspace_bytes(shape);
}

std::int64_t CudnnAttention::workspace_bytes(const AttentionShape& shape) const {
  const Entry& entry = prepared(shape);
  return std::max(entry.forward.workspace_bytes, entry.backward.workspace_bytes);
}

// ---- running

void CudnnAttention::forward(cudaStream_t stream, const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q,
                             ConstTensorView k, ConstTensorView v, ConstTensorView first_key, std::byte* workspace) {
  const Pass& pass = prepared(shape).forward;
  handle_.use(stream);
  if (!pass.plan) {
    cuda_kernels::attention_f32_forward(stream, row_type(shape.dtype), out.data(), lse.as<float>(), q.data(), k.data(), v.data(),
                                        extents(shape, first_key));
    return;
  }
  Scalars scalars(shape);
  Operands operands;
  operands.add_scalars(scalars, shape);
  operands.add(kQ, q.data());
  operands.add(kK, k.data());
  operands.add(kV, v.data());
  operands.add(kOut, out.data());
  operands.add(kLse, lse.data());
  if (shape.interval > 0) operands.add(kFirstKey, first_key.data());
  pass.plan->execute(handle_.get(), operands.uids(), operands.pointers(), workspace + pass.plan_at);
}

void CudnnAttention::backward(cudaStream_t stream, const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v,
                              ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                              ConstTensorView lse, ConstTensorView first_key, std::byte* workspace) {
  const Pass& pass = prepared(shape).backward;
  handle_.use(stream);
  if (!pass.plan) {
    cuda_kernels::attention_f32_backward(stream, row_type(shape.dtype), d_q.data(), d_k.data(), d_v.data(),
                                         reinterpret_cast<float*>(workspace + pass.delta_at), d_out.data(), out.data(), q.data(),
                                         k.data(), v.data(), lse.as<float>(), extents(shape, first_key));
    return;
  }
  Scalars scalars(shape);
  const PieceBytes bytes(pass.rule.piece);
  for (std::int64_t i = 0; i < pass.rule.pieces; ++i) {
    const std::int64_t at_q = i * bytes.queries, at_k = i * bytes.keys;
    Operands operands;
    operands.add_scalars(scalars, shape);
    operands.add(kOne, &scalars.one);
    operands.add(kQ, q.data() + at_q);
    operands.add(kK, k.data() + at_k);
    operands.add(kV, v.data() + at_k);
    operands.add(kOut, out.data() + at_q);
    operands.add(kDOut, d_out.data() + at_q);
    operands.add(kLse, lse.data() + i * bytes.rows);
    operands.add(kDQ, d_q.data() + at_q);
    operands.add(kDK, d_k.data() + at_k);
    operands.add(kDV, d_v.data() + at_k);
    const std::int64_t sample = i * pass.rule.piece.batch * pass.rule.piece.kv_heads / shape.kv_heads;
    if (shape.interval > 0) operands.add(kFirstKey, first_key.as<std::int32_t>() + sample * shape.query_length);
    operands.add(kDelta, workspace + pass.delta_at);
    if (options_.determinism == Determinism::kNotRequired) operands.add(kDQSum, workspace + pass.d_q_sum_at);
    pass.plan->execute(handle_.get(), operands.uids(), operands.pointers(), workspace + pass.plan_at);
  }
}

// ---- first runs

namespace {

// Operands of both directions one behind the other from `at` on, which may be null; and how many bytes they take.
struct FirstAttention {
  FirstAttention(const AttentionShape& s, std::int64_t workspace_bytes, std::byte* at) {
    const auto take = [&](DType dtype, std::int64_t elements) {
      const TensorView taken(at == nullptr ? nullptr : at + bytes, dtype, {elements}, MemoryKind::kDevice);
      bytes += round_up(elements * size_of(dtype), kAlignment);
      return taken;
    };
    const std::int64_t queries = s.batch * s.query_heads * s.query_length, keys = s.batch * s.kv_heads * s.key_length;
    for (TensorView* view : {&q, &out, &d_out, &d_q}) *view = take(s.dtype, queries * s.head_dim);
    for (TensorView* view : {&k, &v, &d_k, &d_v}) *view = take(s.dtype, keys * s.head_dim);
    lse = take(DType::kF32, queries);
    first_key = take(DType::kI32, s.interval > 0 ? s.batch * s.query_length : 0);
    workspace = take(DType::kU8, workspace_bytes);
  }
  TensorView q, k, v, out, lse, d_q, d_k, d_v, d_out, first_key, workspace;
  std::int64_t bytes = 0;
};

}  // namespace

std::int64_t CudnnAttention::first_run_bytes() const {
  std::int64_t bytes = 0;
  for (const Entry& entry : entries_)
    if (!entry.has_run) bytes = std::max(bytes, FirstAttention(entry.shape, workspace_bytes(entry.shape), nullptr).bytes);
  return bytes;
}

void CudnnAttention::run_announced(cudaStream_t stream, std::byte* operands) {
  for (Entry& entry : entries_) {
    if (std::exchange(entry.has_run, true)) continue;
    const FirstAttention x(entry.shape, workspace_bytes(entry.shape), operands);
    forward(stream, entry.shape, x.out, x.lse, x.q, x.k, x.v, x.first_key, x.workspace.data());
    backward(stream, entry.shape, x.d_q, x.d_k, x.d_v, x.d_out, x.out, x.q, x.k, x.v, x.lse, x.first_key, x.workspace.data());
  }
}

// ---- describing

std::string CudnnAttention::describe(const Pass& pass) const {
  if (!pass.plan) return fmt::format("own kernels (cuDNN: {})", pass.rule.why_not);
  std::string text = fmt::format("cuDNN engine {}", pass.plan->engine());
  if (pass.rule.pieces > 1)
    text += fmt::format(" in {} pieces of {} x {} heads", pass.rule.pieces, pass.rule.piece.batch, pass.rule.piece.query_heads);
  return text;
}

std::string CudnnAttention::describe(const AttentionShape& shape) const {
  const Entry& entry = prepared(shape);
  return fmt::format("attention {}: forward {}, {}backward {}, workspace {:.1f} MB", trident::describe(shape),
                     describe(entry.forward), options_.determinism == Determinism::kRequired ? "deterministic " : "",
                     describe(entry.backward), static_cast<double>(workspace_bytes(shape)) / 1e6);
}

std::vector<std::string> CudnnAttention::notes() const {
  std::vector<std::string> lines;
  for (const Entry& entry : entries_) {
    if (entry.shape.dtype == DType::kF32) continue;
    for (const Pass* pass : {&entry.forward, &entry.backward})
      if (!pass->plan)
        lines.push_back(fmt::format("attention {}: {} computed by our own kernels, slower than cuDNN's, which does not take it: {}",
                                    trident::describe(entry.shape), pass == &entry.forward ? "forward" : "backward",
                                    pass->rule.why_not));
  }
  return lines;
}

}  // namespace trident
