#include "device/cpu/memory_reads.h"

#include <cstdint>

namespace trident {

std::uint64_t sum_of_words(std::span<const std::uint64_t> words) {
  const std::uint64_t* const w = words.data();
  const auto count = static_cast<std::int64_t>(words.size());
  std::uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += w[i];
  return sum;
}

}  // namespace trident
