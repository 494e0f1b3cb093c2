// The backend over CUDA itself, under a name of its own: a program that loads it as a module has another make_cuda_backend().
#pragma once

#include <memory>

#include "parallel/cuda/cuda_backend.h"

namespace trident {

std::unique_ptr<CudaBackend> make_loaded_cuda_backend();

}  // namespace trident
