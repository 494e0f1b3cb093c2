// Time as a value: seconds since an arbitrary start (monotonic) or since 1970 (UTC), and CPU seconds of this thread.
#pragma once

#include <string>

namespace trident {

double monotonic_seconds();
double unix_seconds();
double thread_cpu_seconds();

// The local time now, in strftime's format.
std::string local_time_text(const char* format);

}  // namespace trident
