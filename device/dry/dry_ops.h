// Operations that check their operands and compute nothing.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "device/checked_ops.h"

namespace trident {

class DryOps : public CheckedOps<DryOps> {
 public:
  // When products and attention are announced: before they are called, or else refused, as by backends that compute; or by the call
  // itself, which then needs no workspace.
  enum class Announced : std::uint8_t { kBefore, kOnUse };

  // `oracle`, if there is one, outlives the object and says what workspace a product or an attention takes, as while planning; it
  // computes nothing. Without one none takes any: what is booked for workspaces is then too little.
  explicit DryOps(Ops* oracle, Announced announced = Announced::kBefore) : oracle_(oracle), announced_(announced) {}

  // Bytes, of all products and attentions announced so far.
  std::int64_t largest_workspace() const { return largest_workspace_; }

  std::int64_t prepare_matmul(const MatmulShape& shape) override;
  std::int64_t prepare_fused(const MatmulShape& shape, Epilogue epilogue) override;
  bool try_fused(Stream& stream, const FusedMatmul& fused) override;
  void matmul(Stream& stream, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
              Accumulate accumulate, TensorView workspace) override;
  std::int64_t attention_workspace(const AttentionShape& shape) override;
  void attention_forward(Stream& stream, const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q,
                         ConstTensorView k, ConstTensorView v, TensorView workspace) override;
  void attention_backward(Stream& stream, const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v,
                          ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                          ConstTensorView lse, TensorView workspace) override;

  static bool reaches(MemoryKind) { return true; }
  // The row kernels: none looks at its operands.
  struct Kernels {
#define TRIDENT_DRY_KERNEL(name) \
  template <class... Operands>   \
  void name(Operands&&...) const {}
    TRIDENT_DRY_KERNEL(split_heads)
    TRIDENT_DRY_KERNEL(merge_heads)
    TRIDENT_DRY_KERNEL(rope)
    TRIDENT_DRY_KERNEL(rms_norm_forward)
    TRIDENT_DRY_KERNEL(rms_norm_backward)
    TRIDENT_DRY_KERNEL(layer_norm_forward)
    TRIDENT_DRY_KERNEL(layer_norm_backward)
    TRIDENT_DRY_KERNEL(swiglu_forward)
    TRIDENT_DRY_KERNEL(swiglu_backward)
    TRIDENT_DRY_KERNEL(gelu_forward)
    TRIDENT_DRY_KERNEL(gelu_backward)
    TRIDENT_DRY_KERNEL(embedding_forward)
    TRIDENT_DRY_KERNEL(embedding_backward)
    TRIDENT_DRY_KERNEL(cross_entropy_max)
    TRIDENT_DRY_KERNEL(cross_entropy_stats)
    TRIDENT_DRY_KERNEL(cross_entropy_rescale)
    TRIDENT_DRY_KERNEL(cross_entropy_loss)
    TRIDENT_DRY_KERNEL(cross_entropy_backward)
    TRIDENT_DRY_KERNEL(add_bias)
    TRIDENT_DRY_KERNEL(sum_rows)
    TRIDENT_DRY_KERNEL(add)
    TRIDENT_DRY_KERNEL(accumulate)
    TRIDENT_DRY_KERNEL(dropout)
    TRIDENT_DRY_KERNEL(convert)
    TRIDENT_DRY_KERNEL(fill_zero)
    TRIDENT_DRY_KERNEL(sum_squares)
    TRIDENT_DRY_KERNEL(add_exact)
    TRIDENT_DRY_KERNEL(adamw)
    TRIDENT_DRY_KERNEL(adamw_stochastic)
#undef TRIDENT_DRY_KERNEL
  };
  static Kernels row_kernels(Stream&) { return {}; }

 private:
  // What was announced, and its workspace; a step has a few dozen.
  template <class Shape>
  using Announcements = std::vector<std::pair<Shape, std::int64_t>>;
  template <class Shape>
  std::int64_t note(Announcements<Shape>& announced, const Shape& shape, std::int64_t bytes);
  // Of what has been announced; 0 where calls need none.
  template <class Shape>
  std::int64_t needed(const Announcements<Shape>& announced, const Shape& shape, std::string_view what) const;

  Ops* oracle_;
  Announced announced_;
  std::int64_t largest_workspace_ = 0;
  Announcements<MatmulShape> products_;
  Announcements<AttentionShape> attentions_;
};

}  // namespace trident
