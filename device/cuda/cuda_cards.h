// What the driver says of the cards of this machine.
#pragma once

#include "device/cuda_facts.h"

namespace trident {

// Throws nothing: what stands in the way of using cards is in `problem`, with the remedy. Opens every card (some hundred milliseconds).
CudaFacts find_cuda_cards();

}  // namespace trident
