// Measures the memory read bandwidth, the floor for operations that read much and compute little.
#pragma once

#include <cstdint>
#include <span>

namespace trident {

// The sum of all, modulo 2^64, read once in order by the threads of the calling thread's team (CpuDevice sets their number), each
// its own part. What it says is of no use; that every word was needed for it is.
std::uint64_t sum_of_words(std::span<const std::uint64_t> words);

}  // namespace trident
