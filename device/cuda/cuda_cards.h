// What the driver says of the cards of this machine, and what is only known of a card once it is opened.
//
// To open a card is to make a context on it, which takes some hundred megabytes of its memory and as many milliseconds: a process opens those
// that it computes on.
#pragma once

#include <cstdint>

#include "device/cuda_facts.h"

namespace trident {

// Opens none. Throws nothing: what stands in the way of using cards is in CudaFacts::problem, of using one in CardFacts::problem.
CudaFacts find_cuda_cards();

// Opens a card, on the calling thread (a card that is open stays so), and brings all our kernels there. What stands in the way of using it, with the remedy: another process
// that holds it, a card out of order, one that this binary has no code for. Empty if nothing does.
std::string open_cuda_card(const CardFacts& card);
// Gives back what open_cuda_card() took. Nothing else of this process may be on the card.
void close_cuda_card(int number);

// Free memory of a card that is open, in bytes. Throws what check_cuda throws.
std::int64_t free_bytes_of_cuda_card(int number);

}  // namespace trident
