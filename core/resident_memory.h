// Memory that this process has in the machine's, as the kernel counts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trident {

struct ResidentMemory {
  std::int64_t own = 0;     // bytes that only this process has: heap, stacks, arenas
  std::int64_t shared = 0;  // bytes of shared memory that it has touched
  std::int64_t files = 0;   // bytes of mapped files, the program among them; others may have the same ones
};

// Nothing where `path`, which tests replace, does not say.
std::optional<ResidentMemory> resident_memory(const std::string& path = "/proc/self/status");

// All three.
std::optional<std::int64_t> resident_memory_bytes();

}  // namespace trident
