#pragma once

namespace trident {

// A value of every rank in four numbers.
struct Extremes {
  double min = 0, mean = 0, max = 0;
  int largest = 0;  // the first rank that has the maximum
};

}  // namespace trident
