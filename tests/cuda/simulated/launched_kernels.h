// Which kernels have run: every instance of a template is one of its own.
#pragma once

#include <set>

namespace trident::simulated {

// Kernels that the card has without a launch, since the process started: those that somebody asked about.
void note_loaded_kernel(int device, const void* function);
std::set<const void*> loaded_kernels(int device);

// Notes that the kernel with this address has run (a block of it at least).
void note_kernel(const void* function);
// All that have run since the process started.
std::set<const void*> launched_kernels();

}  // namespace trident::simulated
