// CUDA kernels whose bits are compared with the host's, in the shape of the host's table of row kernels: every call takes its
// operands to the (simulated) device, runs the kernel there and brings back what it wrote.
#pragma once

#include <cstdint>
#include <ostream>

#include "device/row_kernels/row_kernels.h"

namespace trident::testing {

// Where operands lie on the device.
enum class Placement {
  kAligned,    // each at a multiple of 256 bytes
  kMisaligned  // each one element behind such a multiple
};

inline void PrintTo(Placement placement, std::ostream* out) {
  *out << (placement == Placement::kAligned ? "aligned" : "misaligned");
}

// The kernels; `level` means nothing. A kernel that writes outside its outputs, or to its inputs, fails the running test. Entries
// of kernels that only the conformance suite runs are null, and conversions between equal types are plain copies.
const RowKernels& cuda_kernel_table(Placement placement);

// The host computes cross_entropy_loss beside the table.
// row_losses, weights: or nullptr.
double cuda_cross_entropy_loss(Placement placement, float* row_losses, const float* sum_exp, const float* target_logit,
                               const std::int32_t* targets, std::int64_t rows, const float* weights = nullptr);

}  // namespace trident::testing
