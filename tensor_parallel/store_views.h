// The parameters of one unit in a ParamStore, for its passes.
#pragma once

#include "parallel/zero/param_store.h"
#include "tensor_parallel/pass.h"

namespace trident {

class StoreViews final : public ParamViews {
 public:
  StoreViews(const ParamStore& store, int unit) : store_(&store), unit_(unit) {}

  ConstTensorView weight(int param) const override { return store_->weight(unit_, param); }
  bool trains(int param) const override { return store_->trains(unit_, param); }
  TensorView grad(int param) const override { return store_->grad(unit_, param); }
  Accumulate grad_mode() const override { return store_->grad_mode(unit_); }

 private:
  const ParamStore* store_;
  int unit_;
};

}  // namespace trident
