// Memory that the address sanitizer reports the use of; nothing happens in builds without it.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace trident::simulated {

inline void poison([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(start, bytes);
#endif
}

inline void unpoison([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(start, bytes);
#endif
}

}  // namespace trident::simulated
