// The driver's facts about the GPUs of this machine, and facts that are known only once a GPU is opened.
//
// To open a GPU is to make a context on it, which takes some hundred megabytes of its memory and as many milliseconds: a process opens those
// that it computes on.
#pragma once

#include <cstdint>

#include "device/cuda_facts.h"

namespace trident {

// Opens none. Throws nothing: what stands in the way of using GPUs is in CudaFacts::problem, of using one in GpuFacts::problem.
CudaFacts find_cuda_gpus();

// Opens a GPU, on the calling thread (a GPU that is open stays so), and brings all our kernels there. What stands in the way of using it, with the remedy: another process
// that holds it, a GPU out of order, one that this binary has no code for. Empty if nothing does.
std::string open_cuda_gpu(const GpuFacts& gpu);
// Gives back what open_cuda_gpu() took. Nothing else of this process may be on the GPU.
void close_cuda_gpu(int number);

// Free memory of a GPU that is open, in bytes. Throws what check_cuda throws.
std::int64_t free_bytes_of_cuda_gpu(int number);

}  // namespace trident
