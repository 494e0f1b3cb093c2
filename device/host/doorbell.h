// Sleeping until a peer changes something: a counter that peers ring and its owner waits on.
//
// Plain atomics with a futex, so it works between threads and, placed in shared memory, between processes.
#pragma once

#include <atomic>
#include <cstdint>

namespace trident {

class Doorbell {
 public:
  std::uint32_t count() const { return count_.load(std::memory_order_acquire); }
  // Wakes the owner if it sleeps. Everything written before ring() is visible to an owner that saw the new count.
  void ring();
  // Returns when count() != seen, or after `timeout_seconds`. May return early; callers look again.
  void wait(std::uint32_t seen, double timeout_seconds);

 private:
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> sleeping_{0};
};

}  // namespace trident
