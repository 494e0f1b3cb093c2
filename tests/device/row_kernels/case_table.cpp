#include "case_table.h"

namespace trident::testing {

const std::vector<OpCase>& all_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all;
    for (const auto& part : {element_cases(), loss_cases(), norm_cases(), row_cases()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return cases;
}

}  // namespace trident::testing
