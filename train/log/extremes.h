// A number that every rank has, as its least, mean and largest value.
#pragma once

namespace trident {

struct Extremes {
  double min = 0, mean = 0, max = 0;
  int largest = 0;  // the first rank that has the maximum
};

}  // namespace trident
