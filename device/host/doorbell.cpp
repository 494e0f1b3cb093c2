#include "device/host/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cmath>
#include <ctime>

namespace trident {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) && std::atomic<std::uint32_t>::is_always_lock_free);

// Not the process-private kind: a doorbell may lie in memory shared between processes.
long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

// ring() adds and then looks for a sleeper; wait() announces the sleeper and then looks at the count. In the one total order of
// sequentially consistent operations at least one of the two sees the other.
void Doorbell::ring() {
  count_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) != 0) futex(&count_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Doorbell::wait(std::uint32_t seen, double timeout_seconds) {
  if (timeout_seconds <= 0) return;
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  if (count_.load(std::memory_order_seq_cst) == seen) {
    timespec timeout{};
    timeout.tv_sec = static_cast<std::time_t>(timeout_seconds);
    timeout.tv_nsec = static_cast<long>((timeout_seconds - std::floor(timeout_seconds)) * 1e9);
    futex(&count_, FUTEX_WAIT, seen, &timeout);
  }
  sleeping_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace trident
