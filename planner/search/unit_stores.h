// Parameters of single units, run dry: what gathering, reducing and updating them calls (part of unit_costs.h).
#pragma once

#include "planner/search/unit_costs.h"

namespace trident {

struct UnitStoreInputs {
  const TrainConfig& config;
  const ModelConfig& model;
  DType compute = DType::kF32;
  Ops* oracle = nullptr;
};

StorePasses run_unit_stores(const StoreKey& key, const UnitStoreInputs& inputs);

}  // namespace trident
