#include "device/cpu/memory_reads.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/int_math.h"
#include "device/cpu/team.h"

namespace trident {

std::uint64_t sum_of_words(std::span<const std::uint64_t> words) {
  const std::uint64_t* const w = words.data();
  const auto count = static_cast<std::int64_t>(words.size());
  std::uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += w[i];
  return sum;
}

void copy_in_parts(std::span<std::byte> to, std::span<const std::byte> from) {
  const auto bytes = static_cast<std::int64_t>(from.size()), part = ceil_div(bytes, team_size());
  on_team(team_size(), [&](std::int64_t i, std::int64_t) {
    const std::int64_t first = std::min(bytes, i * part), count = std::min(part, bytes - first);
    if (count > 0) std::memcpy(to.data() + first, from.data() + first, static_cast<std::size_t>(count));
  });
}

}  // namespace trident
