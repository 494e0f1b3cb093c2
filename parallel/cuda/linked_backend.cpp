// For programs that are linked with CUDA: tests, and checks of a GPU.
#include "parallel/cuda/loaded_backend.h"

namespace trident {

std::unique_ptr<CudaBackend> make_cuda_backend() { return make_loaded_cuda_backend(); }

}  // namespace trident
