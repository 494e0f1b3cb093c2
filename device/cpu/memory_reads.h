// Read and copy what no cache holds with all threads: the floors for operations that move much and compute little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trident {

// The sum of all, modulo 2^64, read once in order by the threads of the calling thread's team (CpuDevice sets their number), each
// its own part. What it says is of no use; that every word was needed for it is.
std::uint64_t sum_of_words(std::span<const std::uint64_t> words);
// Likewise, each thread one part. `to` is as long as `from`, and apart from it.
void copy_in_parts(std::span<std::byte> to, std::span<const std::byte> from);

}  // namespace trident
