// Which process has a lease, and whether it still lives, as far as another process can tell.
#pragma once

#include <cstdint>
#include <string>

namespace trident {

struct LeaseHolder {
  std::string token;                      // who starts a run again hands the same one to each start
  std::string host, boot, pid_namespace;  // "" where the kernel does not say
  std::int64_t pid = 0, started = 0;  // started: clock ticks after the boot, so that a reused pid is another process; 0: unknown
  bool operator==(const LeaseHolder&) const = default;
};

LeaseHolder this_process(std::string token);

enum class HolderState : std::uint8_t {
  kAlive,
  kDead,
  kElsewhere,  // on another host, in another process namespace, or hidden from this process: only what it writes shows that it
               // lives
};
// As `watcher`, which is the process that asks, sees it.
HolderState state_of(const LeaseHolder& holder, const LeaseHolder& watcher);

// "pid 4711 on n1".
std::string describe(const LeaseHolder& holder);

}  // namespace trident
