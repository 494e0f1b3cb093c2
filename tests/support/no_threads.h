// A process that gets no threads, for tests of what is said then.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <system_error>
#include <thread>

namespace trident {

// In a child process, which is another user afterwards: whether the system refuses it threads from now on.
inline bool forbid_threads() {
  if (geteuid() == 0 && setuid(65534) != 0) return false;  // root is not limited
  const rlimit none{0, 0};
  if (setrlimit(RLIMIT_NPROC, &none) != 0) return false;
  try {
    std::thread([] {}).join();
  } catch (const std::system_error&) {
    return true;
  }
  return false;
}

}  // namespace trident
