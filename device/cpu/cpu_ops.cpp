#include "device/cpu/cpu_ops.h"

#include <cstdint>

#include "core/tsan_announce.h"

namespace trident {

namespace {

void begin(Stream& stream) { stream.synchronize(); }  // as for row kernels

}  // namespace

CpuOps::CpuOps(IsaLevel level, Bf16Products bf16)
    : kernels_{trident::row_kernels(level)}, matmul_(bf16, trident::row_kernels(level)),
      attention_(matmul_, trident::row_kernels(level)) {}

// ---- matrix products

std::int64_t CpuOps::prepare_matmul(const MatmulShape& shape) { return matmul_.prepare(shape); }

void CpuOps::matmul(Stream& stream, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b,
                    Transpose transpose_b, Accumulate accumulate, TensorView workspace) {
  const MatmulShape shape = matmul_shape({out, a, transpose_a, b, transpose_b, accumulate, workspace});
  const std::int64_t needed = matmul_.workspace_bytes(shape);
  TRIDENT_CHECK(workspace.num_bytes() >= needed, "matmul: a workspace of {} bytes, {} needed", workspace.num_bytes(), needed);
  begin(stream);
  announce_read(a);
  announce_read(b);
  announce_write(out);
  matmul_.run(shape, out.data(), a.data(), b.data(), workspace.data());
}

// ---- attention

std::int64_t CpuOps::attention_workspace(const AttentionShape& shape) {
  check_attention("attention_workspace", shape);
  return attention_.prepare(shape);
}

void CpuOps::attention_forward(Stream& stream, const AttentionShape& s, TensorView out, TensorView lse, ConstTensorView q,
                               ConstTensorView k, ConstTensorView v, TensorView workspace) {
  constexpr std::string_view kName = "attention_forward";
  check_attention(kName, s);
  check_attention_operands(kName, s, {{"out", out}, {"q", q}}, {{"k", k}, {"v", v}}, lse, workspace, attention_.workspace_bytes(s));
  begin(stream);
  announce_read(q);
  announce_read(k);
  announce_read(v);
  announce_write(out);
  attention_.forward(s, out, lse, q, k, v, workspace.data());
}

void CpuOps::attention_backward(Stream& stream, const AttentionShape& s, TensorView d_q, TensorView d_k, TensorView d_v,
                                ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                                ConstTensorView lse, TensorView workspace) {
  constexpr std::string_view kName = "attention_backward";
  check_attention(kName, s);
  check_attention_operands(kName, s, {{"d_q", d_q}, {"d_out", d_out}, {"out", out}, {"q", q}},
                           {{"d_k", d_k}, {"d_v", d_v}, {"k", k}, {"v", v}}, lse, workspace, attention_.workspace_bytes(s));
  begin(stream);
  announce_read(d_out);
  announce_read(q);
  announce_read(k);
  announce_read(v);
  announce_write(d_q);
  announce_write(d_k);
  announce_write(d_v);
  attention_.backward(s, d_q, d_k, d_v, d_out, out, q, k, v, lse, workspace.data());
}

}  // namespace trident
