// Runs of kernels for the list of kernels.
#pragma once

#include "tests/cuda/kernel_table.h"

namespace trident::testing {

// The cases of the host's row kernels, in both types and placements, and the sums that have no such cases: every instance of every
// kernel, against a reference. Failures are the running test's.
void run_every_kernel();
// Two kinds of these are apart: the sums (kernels_sums_test.cpp) and attention (kernels_attention_test.cpp).
void run_sums(Placement placement);
void run_attention(Placement placement);

}  // namespace trident::testing
