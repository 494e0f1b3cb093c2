#include "device/cpu/cpu_ops.h"

#include <cstdint>
#include <string_view>

#include "core/tsan_announce.h"
#include "device/cpu/team_kernels.h"

namespace trident {

namespace {

void expect_room(std::string_view operation, ConstTensorView workspace, std::int64_t needed) {
  const std::int64_t there = workspace.num_bytes();
  TRIDENT_CHECK(there >= needed, "{}: a workspace of {} bytes, {} needed", operation, there, needed);
}

// Before libraries touch memory whose accesses a thread sanitizer does not see.
template <class Operation>
void announce(const Operation& operation) {
  if constexpr (!kAnnounces) return;
  operation.fields([](const Field& field) {
    if (field.use == Field::Use::kRead) announce_read(field.view());
    if (field.use == Field::Use::kWrite || field.use == Field::Use::kUpdate) announce_write(field.view());
  });
}

}  // namespace

CpuOps::CpuOps(IsaLevel level, Bf16Products bf16, SmallProducts small)
    : kernels_{team_kernels(level)}, matmul_(bf16, team_kernels(level), small),
      attention_(matmul_, trident::row_kernels(level)) {}

// ---- matrix products

std::int64_t CpuOps::prepare_matmul(const MatmulShape& shape) { return matmul_.prepare(shape); }

void CpuOps::execute(Stream& stream, const op::Matmul& product) {
  const MatmulShape shape = product.shape();
  const MatmulOperands& p = product.operands;
  expect_room("matmul", p.workspace, matmul_.workspace_bytes(shape));
  stream.synchronize();
  announce(product);
  matmul_.run(shape, p.out.data(), p.a.data(), p.b.data(), p.workspace.data());
}

// ---- attention

std::int64_t CpuOps::attention_workspace(const AttentionShape& shape) {
  op::check_attention("attention_workspace", shape);
  return attention_.prepare(shape);
}

// Workspaces depend on no offset.
std::int64_t CpuOps::cached_attention_workspace(const AttentionShape& shape) {
  op::check_attention("cached_attention_workspace", shape);
  AttentionShape one = shape;
  one.batch = 1;
  return attention_.prepare(one);
}

void CpuOps::execute(Stream& stream, const op::CachedAttention& a) {
  stream.synchronize();
  announce(a);
  for (std::int64_t b = 0; b < a.shape.batch; ++b) {
    const AttentionShape one = a.of_sample(b);
    expect_room(a.kName.name, a.workspace, attention_.workspace_bytes(one));
    attention_.forward(one, a.out.rows(b, 1), a.lse.rows(b, 1), a.q.rows(b, 1), a.k.rows(b, 1), a.v.rows(b, 1),
                       a.first_key.data() == nullptr ? ConstTensorView() : a.first_key.rows(b, 1), a.workspace.data());
  }
}

void CpuOps::execute(Stream& stream, const op::AttentionForward& a) {
  expect_room(a.kName.name, a.workspace, attention_.workspace_bytes(a.shape));
  stream.synchronize();
  announce(a);
  attention_.forward(a.shape, a.out, a.lse, a.q, a.k, a.v, a.first_key, a.workspace.data());
}

void CpuOps::execute(Stream& stream, const op::AttentionBackward& a) {
  expect_room(a.kName.name, a.workspace, attention_.workspace_bytes(a.shape));
  stream.synchronize();
  announce(a);
  attention_.backward(a.shape, a.d_q, a.d_k, a.d_v, a.d_out, a.out, a.q, a.k, a.v, a.lse, a.first_key, a.workspace.data());
}

}  // namespace trident
