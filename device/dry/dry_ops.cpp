#include "device/dry/dry_ops.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "device/checked_ops.inl"

namespace trident {
namespace {

// Notes that `shape` takes `bytes`, or more.
template <class Shape>
std::int64_t note(std::vector<std::pair<Shape, std::int64_t>>& announced, const Shape& shape, std::int64_t bytes) {
  const auto found = std::ranges::find(announced, shape, &std::pair<Shape, std::int64_t>::first);
  if (found == announced.end()) announced.emplace_back(shape, bytes);
  return bytes;
}

template <class Shape>
std::int64_t bytes_of(const std::vector<std::pair<Shape, std::int64_t>>& announced, const Shape& shape, std::string_view what) {
  const auto found = std::ranges::find(announced, shape, &std::pair<Shape, std::int64_t>::first);
  TRIDENT_CHECK(found != announced.end(), "{} of a shape that was not announced while planning", what);
  return found->second;
}

}  // namespace

// ---- matrix products

std::int64_t DryOps::prepare_matmul(const MatmulShape& shape) {
  return note(products_, shape, oracle_ == nullptr ? 0 : oracle_->prepare_matmul(shape));
}

// What follows the product is an operation of its own here; backends that have one kernel for both prepare the product, too.
std::int64_t DryOps::prepare_fused(const MatmulShape& shape, Epilogue epilogue) {
  prepare_matmul(shape);
  return oracle_ == nullptr ? 0 : oracle_->prepare_fused(shape, epilogue);
}

void DryOps::matmul(Stream&, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
                    Accumulate accumulate, TensorView workspace) {
  const MatmulShape shape = matmul_shape({out, a, transpose_a, b, transpose_b, accumulate, workspace});
  const std::int64_t needed = bytes_of(products_, shape, "matmul");
  TRIDENT_CHECK(workspace.num_bytes() >= needed, "matmul: a workspace of {} bytes, {} needed", workspace.num_bytes(), needed);
}

// ---- attention

std::int64_t DryOps::attention_workspace(const AttentionShape& shape) {
  check_attention("attention_workspace", shape);
  return note(attentions_, shape, oracle_ == nullptr ? 0 : oracle_->attention_workspace(shape));
}

void DryOps::attention_forward(Stream&, const AttentionShape& s, TensorView out, TensorView lse, ConstTensorView q,
                               ConstTensorView k, ConstTensorView v, TensorView workspace) {
  constexpr std::string_view kName = "attention_forward";
  check_attention(kName, s);
  check_attention_operands(kName, s, {{"out", out}, {"q", q}}, {{"k", k}, {"v", v}}, lse, workspace,
                           bytes_of(attentions_, s, kName));
}

void DryOps::attention_backward(Stream&, const AttentionShape& s, TensorView d_q, TensorView d_k, TensorView d_v,
                                ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                                ConstTensorView lse, TensorView workspace) {
  constexpr std::string_view kName = "attention_backward";
  check_attention(kName, s);
  check_attention_operands(kName, s, {{"d_q", d_q}, {"d_out", d_out}, {"out", out}, {"q", q}},
                           {{"d_k", d_k}, {"d_v", d_v}, {"k", k}, {"v", v}}, lse, workspace, bytes_of(attentions_, s, kName));
}

template class CheckedOps<DryOps>;

}  // namespace trident
