// A process of this machine, as the kernel shows it.
#pragma once

#include <cstdint>
#include <optional>

namespace trident {

struct ProcessStatus {
  char state = 0;              // as ps shows it
  std::int64_t cpu_ticks = 0;  // of all its threads
  std::int64_t started = 0;    // in ticks since the boot
  bool has_ended() const { return state == 'Z' || state == 'X'; }
};

// Nothing where /proc shows this process no such other.
std::optional<ProcessStatus> process_status(std::int64_t pid);

}  // namespace trident
