#include "device/cuda/kernels/kernel_list.h"

namespace trident::cuda_kernels {

constinit const ListedKernel* ListedKernel::first_ = nullptr;  // before any of the list is made

}  // namespace trident::cuda_kernels
