// Whether this build has the address or the thread sanitizer, under which a test that takes everything one by one would take
// minutes: there one in several is taken, and in other builds all.
#pragma once

namespace trident::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace trident::test
