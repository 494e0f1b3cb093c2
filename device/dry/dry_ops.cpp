#include "device/dry/dry_ops.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

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

// What follows the product is an operation of its own here; backends that have one kernel for both prepare the product, too.
std::int64_t DryOps::prepare_fused(const MatmulShape& shape, Epilogue epilogue) {
  prepare_matmul(shape);
  return note(products_, shape, oracle_ == nullptr ? 0 : oracle_->prepare_fused(shape, epilogue));
}

bool DryOps::try_fused(Stream&, const FusedMatmul& fused) {
  if (announced_ == Announced::kOnUse) prepare_fused(op::Matmul{fused.product}.shape(), fused.epilogue);
  return false;
}

void DryOps::execute(Stream&, const op::Matmul& product) {
  const MatmulShape shape = product.shape();
  if (announced_ == Announced::kOnUse) prepare_matmul(shape);
  const std::int64_t bytes = needed(products_, shape, "matmul"), there = product.operands.workspace.num_bytes();
  TRIDENT_CHECK(there >= bytes, "matmul: a workspace of {} bytes, {} needed", there, bytes);
}

// ---- attention

std::int64_t DryOps::attention_workspace(const AttentionShape& shape) {
  op::check_attention("attention_workspace", shape);
  return note(attentions_, shape, oracle_ == nullptr ? 0 : oracle_->attention_workspace(shape));
}

void DryOps::attend(std::string_view operation, const AttentionShape& shape, ConstTensorView workspace) {
  if (announced_ == Announced::kOnUse) attention_workspace(shape);
  const std::int64_t bytes = needed(attentions_, shape, operation);
  TRIDENT_CHECK(workspace.num_bytes() >= bytes, "{}: a workspace of {} bytes, {} needed", operation, workspace.num_bytes(), bytes);
}

}  // namespace trident
