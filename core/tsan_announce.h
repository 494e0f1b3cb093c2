// Tells ThreadSanitizer about memory that code it cannot see (a library's kernels) reads or writes, and about threads that wait for
// each other in such code. Nothing in other builds.
#pragma once

#include "core/tensor_view.h"

#ifdef TRIDENT_TSAN
extern "C" {
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace trident {

#ifdef TRIDENT_TSAN
inline constexpr bool kAnnounces = true;
#else
inline constexpr bool kAnnounces = false;
#endif

inline void announce_read([[maybe_unused]] ConstTensorView view) {
#ifdef TRIDENT_TSAN
  if (!view.empty()) __tsan_read_range(const_cast<std::byte*>(view.data()), static_cast<unsigned long>(view.num_bytes()));
#endif
}

inline void announce_write([[maybe_unused]] ConstTensorView view) {
#ifdef TRIDENT_TSAN
  if (!view.empty()) __tsan_write_range(const_cast<std::byte*>(view.data()), static_cast<unsigned long>(view.num_bytes()));
#endif
}

// A thread's work before announce_release(x) has happened for a thread after announce_acquire(x).
inline void announce_release([[maybe_unused]] void* x) {
#ifdef TRIDENT_TSAN
  __tsan_release(x);
#endif
}

inline void announce_acquire([[maybe_unused]] void* x) {
#ifdef TRIDENT_TSAN
  __tsan_acquire(x);
#endif
}

}  // namespace trident
