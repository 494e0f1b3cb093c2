// A file of data and its weight among others.
#pragma once

#include <string>

namespace trident {

struct WeightedPath {
  std::string path;  // prefix of .bin and .idx
  double weight = 1;
  bool operator==(const WeightedPath&) const = default;
};

}  // namespace trident
