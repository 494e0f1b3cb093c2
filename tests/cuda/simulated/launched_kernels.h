// Which kernels have run: every instance of a template is one of its own.
#pragma once

#include <set>

namespace trident::simulated {

// Notes that the kernel with this address has run (a block of it at least).
void note_kernel(const void* function);
// All that have run since the process started.
std::set<const void*> launched_kernels();

}  // namespace trident::simulated
