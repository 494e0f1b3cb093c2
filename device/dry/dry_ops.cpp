#include "device/dry/dry_ops.h"

#include <algorithm>

#include "core/check.h"

namespace trident {

template <class Shape>
std::int64_t DryOps::note(Announcements<Shape>& announced, const Shape& shape, std::int64_t bytes) {
  if (std::ranges::find(announced, shape, &std::pair<Shape, std::int64_t>::first) == announced.end())
    announced.emplace_back(shape, bytes);
  largest_workspace_ = std::max(largest_workspace_, bytes);
  return bytes;
}

template <class Shape>
std::int64_t DryOps::needed(const Announcements<Shape>& announced, const Shape& shape, std::string_view what) const {
  if (announced_ == Announced::kOnUse) return 0;
  const auto found = std::ranges::find(announced, shape, &std::pair<Shape, std::int64_t>::first);
  TRIDENT_CHECK(found != announced.end(), "{} of a shape that was not announced while planning", what);
  return found->second;
}

// ---- matrix products

std::int64_t DryOps::prepare_matmul(const MatmulShape& shape) {
  return note(products_, shape, oracle_ == nullptr ? 0 : oracle_->prepare_matmul(shape));
}

// Backends that have one kernel for a product and what follows it prepare the product, too.
PreparedProduct DryOps::prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t rank) {
  const std::int64_t alone = prepare_matmul(shape);
  if (oracle_ == nullptr) return {alone, false};
  const PreparedProduct prepared = oracle_->prepare_fused(shape, epilogue, rank);
  note(products_, shape, prepared.workspace);
  if (prepared.fused && !one_kernel(shape, epilogue, rank)) fused_.emplace_back(shape, epilogue, rank);
  return prepared;
}

bool DryOps::one_kernel(const MatmulShape& shape, Epilogue epilogue, std::int64_t rank) const {
  return std::ranges::find(fused_, std::tuple(shape, epilogue, rank)) != fused_.end();
}

// As the oracle's device will: in one, or one by one.
bool DryOps::try_fused(Stream&, const FusedMatmul& fused) {
  const op::Fused operation{fused};
  const MatmulShape shape = op::Matmul{fused.product}.shape();
  if (announced_ == Announced::kOnUse) prepare_fused(shape, fused.epilogue, fused.rank());
  if (!one_kernel(shape, fused.epilogue, fused.rank())) return false;
  check_fields(
      operation.name().name, [&](FieldVisitor f) { operation.fields(f); }, &DryOps::reaches);
  expect_room("matmul", fused.product.workspace, needed(products_, shape, "matmul"));
  if (watcher_ != nullptr) watcher_->performed(operation);
  return true;
}

void DryOps::execute(Stream&, const op::Matmul& product) {
  const MatmulShape shape = product.shape();
  if (announced_ == Announced::kOnUse) prepare_matmul(shape);
  expect_room("matmul", product.operands.workspace, needed(products_, shape, "matmul"));
}

// ---- attention

std::int64_t DryOps::attention_workspace(const AttentionShape& shape) {
  op::check_attention("attention_workspace", shape);
  return note(attentions_, shape, oracle_ == nullptr ? 0 : oracle_->attention_workspace(shape));
}

std::int64_t DryOps::cached_attention_workspace(const AttentionShape& shape) {
  op::check_attention("cached_attention_workspace", shape);
  return note(cached_attentions_, shape, oracle_ == nullptr ? 0 : oracle_->cached_attention_workspace(shape));
}

void DryOps::attend(std::string_view operation, const AttentionShape& shape, ConstTensorView workspace) {
  if (announced_ == Announced::kOnUse) attention_workspace(shape);
  expect_room(operation, workspace, needed(attentions_, shape, operation));
}

void DryOps::execute(Stream&, const op::CachedAttention& a) {
  if (announced_ == Announced::kOnUse) cached_attention_workspace(a.shape);
  expect_room(a.kName.name, a.workspace, needed(cached_attentions_, a.shape, a.kName.name));
}

}  // namespace trident
