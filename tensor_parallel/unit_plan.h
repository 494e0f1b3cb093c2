// A UnitPlan runs the passes of a unit dry to find their needs: on addresses without bytes, without peers, each matmul asked of the
// operations that will run it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/function_ref.h"
#include "tensor_parallel/pass.h"

namespace trident {

class UnitPlan {
 public:
  // `unit`: its number, for messages. `oracle` is told of every product and attention, and says what workspace it takes.
  UnitPlan(const LayerGeometry& geometry, Ops& oracle, int unit = 0)
      : geometry_(geometry), oracle_(oracle), unit_(unit), params_(geometry.layout()) {}

  const LayerGeometry& geometry() const { return geometry_; }
  ParamList& param_list() { return params_; }
  const std::vector<ParamSpec>& params() const { return params_.specs(); }

  // Runs `calls` twice, with gradients that overwrite and with such that accumulate; what they need is added to memory(). Ends the
  // last of them. Where parameters are frozen, `calls` are all of the unit's, and a run before finds which tensors are held for
  // which of them.
  void run(FunctionRef<void(Pass&)> calls);
  // After calls with a backward_weight: refuses tensors that are held for it and that it does not read. InternalError that
  // names the tensor.
  void check_last_uses() const;
  const UnitMemory& memory() const { return memory_; }
  std::int64_t region_bytes(Region region) const { return memory_.region_bytes(region); }

 private:
  void run_dry(FunctionRef<void(Pass&)> calls, UnitMemory& memory);

  LayerGeometry geometry_;
  Ops& oracle_;
  int unit_;
  ParamList params_;
  UnitMemory memory_;
};

// A tensor of no unit, for dry passes to be given: what comes in, goes out, is known of the micro-batch.
TensorView dry_view(DType dtype, const Shape& shape);

}  // namespace trident
