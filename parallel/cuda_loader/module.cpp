// The one name that the module trident_cuda.so shows to the program.
#include "parallel/cuda/loaded_backend.h"

extern "C" __attribute__((visibility("default"))) trident::CudaBackend* trident_make_cuda_backend() { return trident::make_loaded_cuda_backend().release(); }
