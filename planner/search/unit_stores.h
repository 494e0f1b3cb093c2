// Parameters of single units, run dry: what gathering, reducing and updating them calls (part of unit_costs.h).
#pragma once

#include "planner/search/unit_costs.h"

namespace trident {

StorePasses run_unit_stores(const StoreKey& key, const UnitCosts& costs, Ops* oracle);

}  // namespace trident
