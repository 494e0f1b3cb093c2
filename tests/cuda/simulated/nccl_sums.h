// These sums are what NCCL computes.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace trident::simulated {

std::size_t nccl_type_bytes(ncclDataType_t type);
// out[i] = sources[.][i] reduced, rounded to the type at every step.
void nccl_reduce(ncclDataType_t type, ncclRedOp_t op, void* out, const std::vector<const std::byte*>& sources, std::size_t first,
                 std::size_t count);

}  // namespace trident::simulated
