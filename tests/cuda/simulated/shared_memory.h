// Shared memory of the block that runs: variables declared __shared__ (which simt.h puts in sections of their own) and dynamic
// memory.
#pragma once

#include <cstddef>

namespace trident::simulated {

constexpr std::size_t kSharedBytes = 227 << 10;  // a block's at most, both kinds together

// `bytes` of memory; what follows them is poisoned where there is an address sanitizer.
unsigned char* dynamic_shared_memory(std::size_t bytes);
// A block finds garbage, in `dynamic_bytes` of dynamic memory and in every __shared__ variable of the program.
void fill_shared_memory(std::size_t dynamic_bytes, unsigned char value);

}  // namespace trident::simulated
