// One call of a layer: it asks here for its tensors, its parameters, products and collectives. Forward and backward are written
// once, against this; run dry they are the plan (unit_plan.h).
//
// The real pass finds saved and kept tensors where the dry one put them, and takes scratch again: as many tensors, in the same
// order, of the same types, shapes and places for each kind of call, so that its high-water is the planned one, too. What differs
// is an InternalError that names the call or the tensor. Nothing is allocated, and a pass may be run twice (Device::repeat).
#pragma once

#include <array>
#include <cstdint>

#include "core/check.h"
#include "device/arena.h"
#include "device/operations.h"
#include "device/ops.h"
#include "parallel/communicator/communicator.h"
#include "tensor_parallel/layer_plan.h"

namespace trident {

// A unit's parameters while one of its passes runs.
class ParamViews {
 public:
  virtual ConstTensorView weight(int param) const = 0;  // the dense weight in the compute dtype
  virtual bool trains(int param) const = 0;             // false: it has no gradient
  virtual TensorView grad(int param) const = 0;         // f32, dense, written as grad_mode() says
  virtual Accumulate grad_mode() const = 0;

 protected:
  ~ParamViews() = default;
};

// Dropout masks are drawn by these.
struct MaskDraws {
  ConstTensorView samples = {};  // i64 [B]: global sample index
  std::int64_t step = 0;
  bool drops = false;            // in training
};

// Where a pass runs.
struct PassEnvironment {
  Ops& ops;
  Stream& stream;
  Communicator& tensor;  // the tensor-parallel group
  const ParamViews& params;
  const LayerGeometry& geometry;
  int unit = 0;
  std::array<std::byte*, kNumRegions> base = {};  // by Region; of the sizes in the unit's memory
  std::int64_t workspace_bytes = 0;
  MemoryKind where = MemoryKind::kHost;
};

class Pass : private PassEnvironment {
 public:
  Pass(const PassEnvironment& place, const UnitMemory& memory) : PassEnvironment(place), memory_(memory) {}
  // Dry: what is asked for is added to `memory`.
  Pass(const PassEnvironment& place, UnitMemory* memory) : Pass(place, *memory) { planned_ = memory; }

  using PassEnvironment::ops, PassEnvironment::stream, PassEnvironment::tensor, PassEnvironment::geometry, PassEnvironment::unit;
  MaskDraws draws;       // of a pass over one micro-batch
  bool adapts = true;    // false: adapters add nothing

  // A dry pass that plans: of calls with the same shapes one is enough.
  bool plans() const { return planned_ != nullptr; }

  // Tensors asked for until end() belong to such a call; calls do not overlap. Other passes may lie between backward_input and
  // backward_weight: what was used last before is gone.
  void begin(PassKind kind);
  void end();
  // The rest of the call, and its scratch, is left out this time. Not of a call that plans.
  void leave_out() {
    TRIDENT_CHECK(!plans());
    next_scratch_ = memory_.scratch[static_cast<std::size_t>(kind_)].tensors.size();
  }
  PassKind kind() const { return kind_; }

  // ---- tensors
  // A tensor that is written now and read by later calls for this micro-batch.
  TensorView save(const Saved& tensor, DType dtype, const Shape& shape);
  TensorView keep(const BetweenIW& tensor, DType dtype, const Shape& shape);
  TensorView derive(const Derived& tensor, DType dtype, const Shape& shape);
  // As it was saved, kept or derived.
  TensorView operator[](const Saved& tensor) const {
    check_in_use(tensor);
    return read(&tensor, tensor.name);
  }
  TensorView operator[](const BetweenIW& tensor) const { return read(&tensor, tensor.name); }
  TensorView operator[](const Derived& tensor) const { return view(find(&tensor, tensor.name)); }
  // A tensor until the ScratchScope around this call closes; last in, first out.
  TensorView scratch(DType dtype, const Shape& shape);
  ScratchPlan& scratch_cursor() { return scratch_; }

  void run(OperationRef operation) { ops.run(stream, operation); }

  // ---- parameters
  ConstTensorView weight(ParamId id) const {
    if (planned_ != nullptr && kind_ == PassKind::kBackwardWeight) planned_->weight_gradient_reads_weights = true;
    return params.weight(id.index);
  }
  // False for a frozen parameter, and for one that is not there.
  bool trains(ParamId id) const { return id.present() && params.trains(id.index); }
  TensorView grad(ParamId id) const { return params.grad(id.index); }
  // The same where an operation always writes a gradient: what trains no parameter goes to scratch, f32 [elements].
  TensorView grad_or_scratch(ParamId id, std::int64_t elements) {
    return trains(id) ? grad(id) : scratch(DType::kF32, {elements});
  }
  Accumulate grad_mode() const { return params.grad_mode(); }

  // ---- products, with the shared workspace
  TensorView workspace() const {
    return {base[static_cast<std::size_t>(Region::kWorkspace)], DType::kU8, Shape{workspace_bytes}, where};
  }
  // out = op(a) op(b), for a product with what follows it.
  MatmulOperands product(TensorView out, ConstTensorView a, Transpose ta, ConstTensorView b, Transpose tb) const {
    return {out, a, ta, b, tb, Accumulate::kNo, workspace()};
  }
  // out (+)= op(a) op(b).
  void matmul(TensorView out, ConstTensorView a, Transpose ta, ConstTensorView b, Transpose tb,
              Accumulate accumulate = Accumulate::kNo) {
    run(op::Matmul{{out, a, ta, b, tb, accumulate, workspace()}});
  }
  void matmul(const MatmulOperands& m) { run(op::Matmul{m}); }
  // Gradient of weight `id` (+)= d_out^T x, d_out [R,M], x [R,N]. Frozen parameters have none, here and below.
  void weight_gradient(ParamId id, ConstTensorView d_out, ConstTensorView x) {
    if (!trains(id)) return;
    matmul(grad(id), d_out, Transpose::kYes, x, Transpose::kNo, grad_mode());
  }
  // The same, and the gradient of `bias` (+)= column sums of d_out.
  void weight_and_bias_gradient(ParamId id, ParamId bias, ConstTensorView d_out, ConstTensorView x) {
    if (!trains(bias)) return weight_gradient(id, d_out, x);
    if (!trains(id)) return run(op::SumRows{.out = grad(bias), .x = d_out, .accumulate = grad_mode()});
    ops.matmul_bias_gradient(stream, {grad(id), d_out, Transpose::kYes, x, Transpose::kNo, grad_mode(), workspace()}, grad(bias));
  }
  // A dense T[R, width] = columns first_column .. of rows T[R, C], and back: as one head.
  void copy_columns(TensorView dense, TensorView rows, std::int64_t first_column) {
    run(op::SplitHeads{.heads = dense.reshape({1, 1, dense.shape()[0], dense.shape()[1]}),
                       .rows = rows.reshape({rows.shape()[0], 1, rows.shape()[1]}), .first_column = first_column});
  }
  void write_columns(TensorView rows, ConstTensorView dense, std::int64_t first_column) {
    run(op::MergeHeads{.rows = rows.reshape({rows.shape()[0], 1, rows.shape()[1]}),
                       .heads = dense.reshape({1, 1, dense.shape()[0], dense.shape()[1]}), .first_column = first_column});
  }

 private:
  TensorView view(const RegionTensor& t) const {
    return {base[static_cast<std::size_t>(t.region)] + t.offset, t.dtype, t.shape, where};
  }
  void check_in_use(const Saved& tensor) const;
  TensorView read(const void* handle, std::string_view name) const;
  const RegionTensor* look_up(const void* handle) const;
  const RegionTensor& find(const void* handle, std::string_view name) const;
  TensorView placed(const void* handle, std::string_view name, Region region, DType dtype, const Shape& shape);
  void note(const RegionTensor& tensor);

  const UnitMemory& memory_;
  UnitMemory* planned_ = nullptr;  // of a dry pass
  ScratchPlan scratch_;
  PassKind kind_ = PassKind::kForward;
  bool open_ = false;             // between begin() and end()
  std::size_t next_scratch_ = 0;  // of the call's: the one that is expected
};

}  // namespace trident
