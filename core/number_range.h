// Two bounds of a number.
#pragma once

namespace trident {

struct NumberRange {
  double low = 0, high = 0;
};

}  // namespace trident
