#include "device/dry/dry_ops.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "device/checked_ops.inl"

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
  if (announced_ == Announced::kOnUse) prepare_fused(matmul_shape(fused.product), fused.epilogue);
  return false;
}

void DryOps::matmul(Stream&, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
                    Accumulate accumulate, TensorView workspace) {
  const MatmulShape shape = matmul_shape({out, a, transpose_a, b, transpose_b, accumulate, workspace});
  if (announced_ == Announced::kOnUse) prepare_matmul(shape);
  const std::int64_t bytes = needed(products_, shape, "matmul");
  TRIDENT_CHECK(workspace.num_bytes() >= bytes, "matmul: a workspace of {} bytes, {} needed", workspace.num_bytes(), bytes);
}

// ---- attention

std::int64_t DryOps::attention_workspace(const AttentionShape& shape) {
  check_attention("attention_workspace", shape);
  return note(attentions_, shape, oracle_ == nullptr ? 0 : oracle_->attention_workspace(shape));
}

void DryOps::attention_forward(Stream&, const AttentionShape& s, TensorView out, TensorView lse, ConstTensorView q,
                               ConstTensorView k, ConstTensorView v, TensorView workspace) {
  constexpr std::string_view kName = "attention_forward";
  if (announced_ == Announced::kOnUse) attention_workspace(s);
  check_attention(kName, s);
  check_attention_operands(kName, s, {{"out", out}, {"q", q}}, {{"k", k}, {"v", v}}, lse, workspace, needed(attentions_, s, kName));
}

void DryOps::attention_backward(Stream&, const AttentionShape& s, TensorView d_q, TensorView d_k, TensorView d_v,
                                ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                                ConstTensorView lse, TensorView workspace) {
  constexpr std::string_view kName = "attention_backward";
  if (announced_ == Announced::kOnUse) attention_workspace(s);
  check_attention(kName, s);
  check_attention_operands(kName, s, {{"d_q", d_q}, {"d_out", d_out}, {"out", out}, {"q", q}},
                           {{"d_k", d_k}, {"d_v", d_v}, {"k", k}, {"v", v}}, lse, workspace, needed(attentions_, s, kName));
}

template class CheckedOps<DryOps>;

}  // namespace trident
