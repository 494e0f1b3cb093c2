// The cost of computing and communicating at once.
#pragma once

namespace trident {

// How many times longer work takes while its rank also does the other kind; at least 1.
struct OverlapSlowdown {
  double compute = 1;
  double communication = 1;
};

}  // namespace trident
