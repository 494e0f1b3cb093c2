// How much memory this process could still take before the kernel kills instead of refusing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trident {

struct AvailableMemory {
  std::int64_t bytes = 0;  // the largest integer where the system does not say
  std::string limit;       // "this node" or "this job's control group", whichever has less
};

// Reads the limits of the machine and of the process's control groups (version 1 and 2), which Slurm and containers use. Page
// cache that the kernel would give up counts as available. Reads below `root`, which tests replace.
AvailableMemory available_memory(const std::string& root = "");

// The smallest limit of those control groups, whoever uses how much of it now; the largest integer where there is none.
std::int64_t control_group_limit(const std::string& root = "");

// Memory that this process has in the machine's, as the kernel counts it.
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
