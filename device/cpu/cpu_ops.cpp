#include "device/cpu/cpu_ops.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/tsan_announce.h"
#include "device/cpu/cpu_features.h"
#include "device/cpu/team_kernels.h"

namespace trident {

namespace {

// AMX multiplies bf16 fastest where it is, but on whole matrices; processors that have it take twice as long for pairs as for f32.
bool multiplies_pairs(Bf16Products bf16) { return bf16 == Bf16Products::kNative && !detect_cpu_features().amx_bf16; }

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
    : kernels_{team_kernels(level)}, matmul_(bf16, team_kernels(level), small), attention_(level, multiplies_pairs(bf16)) {}

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

PreparedProduct CpuOps::prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t rank) {
  const std::int64_t alone = matmul_.prepare(shape);
  if (epilogue != Epilogue::kSummands) return {alone, false};
  const std::optional<std::int64_t> at_once = matmul_.workspace_with_summands(shape, rank);
  return {std::max(alone, at_once.value_or(0)), at_once.has_value()};
}

bool CpuOps::try_fused(Stream& stream, const FusedMatmul& fused) {
  if (fused.epilogue != Epilogue::kSummands) return false;
  const op::Fused operation{fused};
  const MatmulOperands& p = fused.product;
  const MatmulShape shape = op::Matmul{p}.shape();
  TRIDENT_CHECK(p.accumulate == Accumulate::kNo, "a product with summands is not added to its result");
  const std::optional<std::int64_t> needed = matmul_.workspace_with_summands(shape, fused.rank());
  if (!needed) return false;
  check_fields(operation.name().name, [&](FieldVisitor f) { operation.fields(f); }, &CpuOps::reaches);
  expect_room(operation.name().name, p.workspace, *needed);
  stream.synchronize();
  announce(operation);
  matmul_.run_with_summands(shape, p.out.data(), p.a.data(), p.b.data(),
                            {fused.residual.data(), fused.inner.data(), fused.outer.data(), fused.rank()}, p.workspace.data());
  return true;
}

// ---- attention

std::int64_t CpuOps::attention_workspace(const AttentionShape& shape) {
  op::check_attention("attention_workspace", shape);
  return attention_.workspace_bytes(shape);
}

std::int64_t CpuOps::cached_attention_workspace(const AttentionShape& shape) {
  op::check_attention("cached_attention_workspace", shape);
  return attention_.workspace_bytes(shape);
}

template <class Attention>
void CpuOps::attend(Stream& stream, const Attention& a) {
  expect_room(a.kName.name, a.workspace, attention_.workspace_bytes(a.shape));
  stream.synchronize();
  announce(a);
  attention_.run(a);
}

void CpuOps::execute(Stream& stream, const op::AttentionForward& a) { attend(stream, a); }
void CpuOps::execute(Stream& stream, const op::CachedAttention& a) { attend(stream, a); }
void CpuOps::execute(Stream& stream, const op::AttentionBackward& a) { attend(stream, a); }

}  // namespace trident
