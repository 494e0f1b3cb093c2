// The table of row kernel cases: every kernel against the scalar reference, at awkward sizes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel_fixture.h"

namespace trident::testing {

struct OpCase {
  std::string op;       // field of RowKernels
  std::string variant;  // sizes and flags; letters, digits and underscores
  std::function<void(const RowKernels&, RowType)> run;
};

std::vector<OpCase> element_cases();
std::vector<OpCase> loss_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> row_cases();

const std::vector<OpCase>& all_cases();

// Row lengths around every vector width, and long ones.
inline const std::vector<Index> kWidths{1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100, 129, 1029};
// Longer than what any kernel works on at once.
constexpr Index kLongWidth = 8200;

}  // namespace trident::testing
