// Where a layer goes from the residual stream into its tensor-parallel part and back.
//
// Outside, activations are whole on every rank (or split over the sequence, under sequence parallelism); inside, every rank sees
// the whole sequence and holds a part of the width. Megatron's conjugate pairs (Shoeybi et al. 2019, arXiv 1909.08053, section 3;
// Korthikanti et al. 2022, arXiv 2205.05198, section 4.2) are two functions here, each the other's backward:
//
//                 sequence parallel                      not
//   enter         all_gather over the sequence           identity        ("g"  / "f" forward)
//   leave         reduce_scatter over the sequence       all_reduce      ("g-" / "g" forward)
//
// A tensor T[S, B, W] gathered over the sequence is contiguous: rank r's rows are [r*S/t, (r+1)*S/t).
#pragma once

#include <cstdint>

#include "parallel/communicator.h"
#include "tensor_parallel/layer_plan.h"

namespace trident {

class TensorRegion {
 public:
  TensorRegion() = default;
  explicit TensorRegion(const LayerGeometry& geometry) : sharded_(geometry.shards_sequence()) {}

  // Memory for `enter`'s or `leave`'s full-sequence tensor: scratch [S,B,width] where the sequence is split, else nothing.
  RegionTensor plan_full(UnitPlan& plan, std::int64_t width) const;

  // The whole-sequence view of `x` [S',B,W]: gathered into `full` [S,B,W] (of which x may be this rank's slice), or x itself.
  ConstTensorView enter(const UnitRun& run, ConstTensorView x, TensorView full) const;

  // A sum over ranks: each rank writes its summand to leave_buffer(y, full), [S,B,W], then calls leave(), which leaves the sum of
  // all ranks (sequence parallel: of its rows) in y [S',B,W].
  TensorView leave_buffer(TensorView y, TensorView full) const { return sharded_ ? full : y; }
  void leave(const UnitRun& run, TensorView y, TensorView full) const;

 private:
  bool sharded_ = false;
};

// A gradient [S',B,W] that is kept and needed over the whole sequence: written by its owner to local(), completed by gather().
class KeptGradient {
 public:
  KeptGradient() = default;
  KeptGradient(UnitPlan& plan, std::int64_t width);

  TensorView local(const UnitRun& run) const { return run.view(full_).rows(first_, rows_); }
  // Gathers the other ranks' rows (sequence parallel); returns [S,B,W].
  ConstTensorView gather(const UnitRun& run) const;
  ConstTensorView full(const UnitRun& run) const { return run.view(full_); }

 private:
  TensorRegion region_;
  RegionTensor full_;
  std::int64_t first_ = 0, rows_ = 0;
};

}  // namespace trident
