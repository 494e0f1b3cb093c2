// The words in which layers plan and run: geometry of a rank, memory regions, parameter numbers, and one call's view of them.
//
// A layer asks for everything while planning (UnitPlan) and gets views of it while running (UnitRun): nothing allocates in between.
// Letters: S sequence, B micro-batch, H hidden, t tensor-parallel ranks. Activations between layers are T[S', B, H] with S' = S/t
// under sequence parallelism (this rank's rows are s in [rank*S', (rank+1)*S')), else S' = S.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/tensor_view.h"
#include "device/arena.h"
#include "device/ops.h"
#include "parallel/communicator.h"
#include "parallel/param_store.h"
#include "parallel/shard_spec.h"

namespace trident {

enum class RecomputePolicy : std::uint8_t { kNone, kSelective, kFull };

// What parameter layouts depend on: the same on every rank.
struct TensorLayout {
  int degree = 1;
  bool sequence_parallel = false;  // over one rank it changes nothing

  bool shards_sequence() const { return sequence_parallel && degree > 1; }
};

// The shapes every layer of a rank shares.
struct LayerGeometry {
  std::int64_t sequence = 0, micro_batch = 0;
  int tensor_degree = 1, tensor_rank = 0;
  bool sequence_parallel = false;
  DType compute = DType::kF32;
  RecomputePolicy recompute = RecomputePolicy::kNone;
  std::int64_t head_chunk = 0;  // rows of logits that exist at a time, made again in backward; 0: all of them, kept
  std::uint64_t seed = 0;  // of dropout

  TensorLayout layout() const { return {tensor_degree, sequence_parallel}; }
  bool shards_sequence() const { return layout().shards_sequence(); }
  std::int64_t local_sequence() const { return shards_sequence() ? sequence / tensor_degree : sequence; }
  std::int64_t position_offset() const { return shards_sequence() ? tensor_rank * local_sequence() : 0; }
  std::int64_t full_rows() const { return sequence * micro_batch; }
  std::int64_t local_rows() const { return local_sequence() * micro_batch; }
  // First of the local rows among the full ones.
  std::int64_t row_offset() const { return position_offset() * micro_batch; }
  Shape activation_shape(std::int64_t hidden) const { return {local_sequence(), micro_batch, hidden}; }
  Shape full_shape(std::int64_t width) const { return {sequence, micro_batch, width}; }
};

// ---- planning ------------------------------------------------------------------------------------------------------------------

// Where a layer's tensor lives.
enum class Region : std::uint8_t {
  kSaved,       // in the micro-batch's activation slot, from forward to its last backward
  kRecomputed,  // in an area that all units share: made again before backward (recompute policies)
  kKept,        // made by backward_input, last used by backward_weight of the same unit and micro-batch
  kScratch,     // within one call
  kWorkspace,   // of one operation
};
inline constexpr int kNumRegions = 5;

struct RegionTensor {
  Region region = Region::kScratch;
  std::int64_t offset = 0;  // bytes within the region
  DType dtype = DType::kF32;
  Shape shape;

  std::int64_t num_bytes() const { return shape.num_elements() * size_of(dtype); }
};

// What a saved tensor needs to be made again: the attention core only, the whole block, or it is always kept.
enum class RecomputeClass : std::uint8_t { kAttention, kBlock, kNever };

struct ParamId {
  int index = -1;  // in the unit's spec list; -1: there is no such parameter
  bool present() const { return index >= 0; }
};

// A unit's parameters in declaration order. Pure: the same list on every rank.
class ParamList {
 public:
  explicit ParamList(const TensorLayout& layout) : layout_(layout) {}

  const TensorLayout& layout() const { return layout_; }
  ParamId add(ParamSpec spec);
  const std::vector<ParamSpec>& specs() const { return specs_; }

 private:
  TensorLayout layout_;
  std::vector<ParamSpec> specs_;
};

// Collects what the layers of one unit need. Sizes of the regions are what the stage books.
class UnitPlan {
 public:
  UnitPlan(const LayerGeometry& geometry, Ops& ops) : geometry_(geometry), ops_(ops), params_(geometry.layout()) {}

  const LayerGeometry& geometry() const { return geometry_; }
  ParamList& param_list() { return params_; }
  RegionTensor save(DType dtype, Shape shape, RecomputeClass recompute = RecomputeClass::kBlock);
  RegionTensor keep(DType dtype, Shape shape);
  // Scratch is last-in-first-out: open a ScratchScope on scratch_plan() around the takes of one call.
  RegionTensor scratch(DType dtype, Shape shape);
  ScratchPlan& scratch_plan() { return scratch_; }
  // Announces a product out[M,N] (+)= op(a) op(b) in the compute dtype, out in the compute dtype, and what follows it.
  void matmul(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose tb, Accumulate accumulate = Accumulate::kNo,
              Epilogue epilogue = Epilogue::kNone);
  // Announces a weight gradient out f32[M,N] (+)= a^T b, a [K,M], b [K,N], overwriting and accumulating.
  void weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k, Epilogue epilogue = Epilogue::kNone);
  void attention(const AttentionShape& shape);

  std::int64_t region_bytes(Region region) const;
  // The largest tensor of a region, for messages; of shape [] where there is none.
  const RegionTensor& largest(Region region) const { return largest_[static_cast<std::size_t>(region)]; }
  const std::vector<ParamSpec>& params() const { return params_.specs(); }

 private:
  void announce(const MatmulShape& shape, Epilogue epilogue);
  RegionTensor noted(const RegionTensor& tensor);

  LayerGeometry geometry_;
  Ops& ops_;
  ParamList params_;
  std::int64_t saved_ = 0, recomputed_ = 0, kept_ = 0, workspace_ = 0;
  ScratchPlan scratch_;
  std::array<RegionTensor, kNumRegions> largest_{};
};

// ---- running -------------------------------------------------------------------------------------------------------------------

// One call's view of the rank: memory regions, this unit's parameters, the tensor-parallel group.
struct UnitRun {
  Ops& ops;
  Stream& stream;
  Communicator& tensor;
  ParamStore& store;
  int unit = 0;
  std::array<std::byte*, kNumRegions> base{};  // by Region; sizes as the unit's plan says
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
  // out = op(a) op(b) with the shared workspace, for a product with what follows it.
  MatmulOperands product(TensorView out, ConstTensorView a, Transpose ta, ConstTensorView b, Transpose tb) const {
    return {out, a, ta, b, tb, Accumulate::kNo, workspace()};
  }
  // out (+)= op(a) op(b) with the shared workspace.
  void matmul(TensorView out, ConstTensorView a, Transpose ta, ConstTensorView b, Transpose tb,
              Accumulate accumulate = Accumulate::kNo) const {
    ops.matmul(stream, out, a, ta, b, tb, accumulate, workspace());
  }
  void matmul(const MatmulOperands& p) const {
    ops.matmul(stream, p.out, p.a, p.transpose_a, p.b, p.transpose_b, p.accumulate, p.workspace);
  }
  // Gradient of weight `id` (+)= d_out^T x, d_out [R,M], x [R,N].
  void weight_gradient(ParamId id, ConstTensorView d_out, ConstTensorView x) const {
    matmul(grad(id), d_out, Transpose::kYes, x, Transpose::kNo, grad_mode());
  }
  // The same, and the gradient of `bias` (+)= column sums of d_out.
  void weight_and_bias_gradient(ParamId id, ParamId bias, ConstTensorView d_out, ConstTensorView x) const {
    ops.matmul_bias_gradient(stream, {grad(id), d_out, Transpose::kYes, x, Transpose::kNo, grad_mode(), workspace()}, grad(bias));
  }
};

// [.., C] as [rows, C].
template <class View> View as_rows(View x) {
  const std::int64_t columns = x.shape()[-1];
  return x.reshape({x.num_elements() / columns, columns});
}

}  // namespace trident
