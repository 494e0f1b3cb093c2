// Records which kernels have run: every instance of a template is one of its own.
#pragma once

#include <set>
#include <string>

namespace trident::simulated {

// Kernels that the GPU has without a launch, since the process started: those that somebody asked about.
void note_loaded_kernel(int device, const void* function);
std::set<const void*> loaded_kernels(int device);

// Notes that the kernel with this address has run (a block of it at least).
void note_kernel(const void* function);
// All that have run since the process started.
std::set<const void*> launched_kernels();

// Kernels of cuBLASLt and cuDNN come to a GPU with their first use. One that does so while a communicator of NCCL is there may
// wait for ever on a real GPU; here it is late. Until reset_library_kernels().
void note_library_kernel(int device, const std::string& kernel);
std::set<std::string> library_kernels();       // those that came in time
std::set<std::string> late_library_kernels();
void reset_library_kernels();

}  // namespace trident::simulated
