// The table of the conformance suite: which cases there are.
#pragma once

#include <vector>

#include "tests/conformance/op_case.h"

namespace trident::conformance {

// Every operation in both compute dtypes at odd, empty and larger sizes, with every option of device/ops.h. Variants that begin
// with "large_" take most of the time.
const std::vector<OpCase>& all_cases();

// One block of a model at `tokens` tokens, for rates.
struct ModelShape {
  Index tokens = 1024, sequence = 1024, hidden = 768, heads = 12, kv_heads = 12, feed_forward = 3072, vocabulary = 50304;
};
std::vector<OpCase> perf_cases(DType t, const ModelShape& model);

}  // namespace trident::conformance
