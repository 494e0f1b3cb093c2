// What a layer is: it declares parameters and memory while planning, and computes forward, backward-input and backward-weight of one
// micro-batch. It keeps no state between calls; what backward needs lies in the micro-batch's activation slot.
//
// Letters: S sequence, B micro-batch, H hidden, t tensor-parallel ranks. Activations between layers are T[S', B, H] with
// S' = S/t under sequence parallelism (this rank's rows are s in [rank*S', (rank+1)*S')), else S' = S.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "device/arena.h"
#include "device/ops.h"
#include "parallel/communicator.h"
#include "parallel/param_store.h"
#include "parallel/shard_spec.h"

namespace trident {

enum class RecomputePolicy : std::uint8_t { kNone, kSelective, kFull };

// The shapes every layer of a rank shares.
struct LayerGeometry {
  std::int64_t sequence = 0, micro_batch = 0;
  int tensor_degree = 1, tensor_rank = 0;
  bool sequence_parallel = false;
  DType compute = DType::kF32;
  RecomputePolicy recompute = RecomputePolicy::kNone;
  std::uint64_t seed = 0;  // of dropout

  std::int64_t local_sequence() const { return sequence_parallel ? sequence / tensor_degree : sequence; }
  std::int64_t position_offset() const { return sequence_parallel ? tensor_rank * local_sequence() : 0; }
  std::int64_t full_rows() const { return sequence * micro_batch; }
  std::int64_t local_rows() const { return local_sequence() * micro_batch; }
  Shape activation_shape(std::int64_t hidden) const { return {local_sequence(), micro_batch, hidden}; }
};

// ---- planning ------------------------------------------------------------------------------------------------------------------

// Where a layer's tensor lives.
enum class Region : std::uint8_t {
  kSaved,       // in the micro-batch's activation slot, from forward to its last backward
  kRecomputed,  // in an area that all layers share: made again before backward (recompute policies)
  kKept,        // made by backward_input, last used by backward_weight of the same layer and micro-batch
  kScratch,     // within one call
  kWorkspace,   // of one operation
};
inline constexpr int kNumRegions = 5;

struct RegionTensor {
  Region region = Region::kScratch;
  std::int64_t offset = 0;  // bytes within the region
  DType dtype = DType::kF32;
  Shape shape;
};

// What a saved tensor needs to be made again: the whole block, the attention core only, or it is always kept.
enum class RecomputeClass : std::uint8_t { kAttention, kBlock, kNever };

struct ParamId {
  int index = -1;  // in the unit's spec list
};

// Collects what the layers of one unit need. Sizes of the regions are what the stage books.
class UnitPlan {
 public:
  UnitPlan(const LayerGeometry& geometry, Ops& ops) : geometry_(geometry), ops_(ops) {}

  const LayerGeometry& geometry() const { return geometry_; }
  ParamId param(ParamSpec spec);
  RegionTensor save(DType dtype, Shape shape, RecomputeClass recompute = RecomputeClass::kBlock);
  RegionTensor keep(DType dtype, Shape shape);
  // Scratch is last-in-first-out: open a ScratchScope on scratch_plan() around the takes of one call.
  RegionTensor scratch(DType dtype, Shape shape);
  ScratchPlan& scratch_plan() { return scratch_; }
  // Announces a product out[M,N] (+)= op(a) op(b) in the compute dtype.
  void matmul(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose tb, DType out, Accumulate accumulate);
  void attention(const AttentionShape& shape);

  std::int64_t region_bytes(Region region) const;
  const std::vector<ParamSpec>& params() const { return params_; }

 private:
  RegionTensor place(Region region, std::int64_t& top, DType dtype, Shape shape);

  LayerGeometry geometry_;
  Ops& ops_;
  std::vector<ParamSpec> params_;
  std::int64_t saved_ = 0, recomputed_ = 0, kept_ = 0, workspace_ = 0;
  ScratchPlan scratch_;
};

// ---- running -------------------------------------------------------------------------------------------------------------------

// One micro-batch as the model sees it. Row s*B+b is position s of sample b.
struct MicroBatch {
  ConstTensorView tokens;           // i32 [S*B]; first stage
  ConstTensorView targets;          // i32 [S*B]; last stage; negative = not counted
  ConstTensorView positions_by_row;     // i32 [S*B]
  ConstTensorView positions_by_sample;  // i32 [B,S]
  ConstTensorView samples;          // i64 [B]: global sample index, for dropout
  std::int64_t step = 0;
  float gradient_scale = 1.0f;      // loss scale / global_valid_tokens: the one division
  TensorView loss;                  // f64 [1], written by the head: sum over counted tokens of nats
  bool training = true;             // false: no dropout, no saved state needed
};

// One call's view of the rank: memory regions, this unit's parameters, the tensor-parallel group.
struct LayerRun {
  Ops& ops;
  Stream& stream;
  Communicator& tensor;
  ParamStore& store;
  int unit = 0;
  const MicroBatch& batch;
  std::array<std::byte*, kNumRegions> base{};
  std::int64_t workspace_bytes = 0;
  MemoryKind where = MemoryKind::kHost;

  TensorView view(const RegionTensor& t) const {
    return {base[static_cast<std::size_t>(t.region)] + t.offset, t.dtype, t.shape, where};
  }
  TensorView workspace() const {
    return {base[static_cast<std::size_t>(Region::kWorkspace)], DType::kU8, Shape{workspace_bytes}, where};
  }
  ConstTensorView weight(ParamId id) const { return store.weight(unit, id.index); }
  TensorView grad(ParamId id) const { return store.grad(unit, id.index); }
  Accumulate grad_mode() const { return store.grad_mode(unit); }
  // out (+)= op(a) op(b) with the shared workspace.
  void matmul(TensorView out, ConstTensorView a, Transpose ta, ConstTensorView b, Transpose tb,
              Accumulate accumulate = Accumulate::kNo) const {
    ops.matmul(stream, out, a, ta, b, tb, accumulate, workspace());
  }
};

class Layer {
 public:
  virtual ~Layer() = default;

  // Declares parameters, saved, kept and scratch tensors, matrix products. Called once, before anything runs.
  virtual void plan(UnitPlan& plan) = 0;
  // y from x (x is empty for the embedding, y for the head). y may not alias x.
  virtual void forward(const LayerRun& run, ConstTensorView x, TensorView y) const = 0;
  // Makes again what the recompute policy did not keep. `x` as in forward; `y` may be overwritten with anything.
  virtual void recompute(const LayerRun& run, ConstTensorView x, TensorView y) const = 0;
  // d holds the gradient of y and is overwritten with the gradient of x, in place (the head ignores its content, the embedding
  // leaves it). Gradients of one-dimensional parameters are written here.
  virtual void backward_input(const LayerRun& run, ConstTensorView x, TensorView d) const = 0;
  // Gradients of matrices, from what backward_input kept. May communicate over tp.
  virtual void backward_weight(const LayerRun& run, ConstTensorView x) const = 0;
};

}  // namespace trident
