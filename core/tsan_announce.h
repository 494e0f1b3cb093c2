// Tells ThreadSanitizer about memory that code it cannot see (a library's kernels) reads or writes. Nothing in other builds.
#pragma once

#include "core/tensor_view.h"

#ifdef TRIDENT_TSAN
extern "C" {
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
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

}  // namespace trident
