// Time as a value: seconds since an arbitrary start (monotonic), and CPU seconds of this thread.
#pragma once

namespace trident {

double monotonic_seconds();
double thread_cpu_seconds();

}  // namespace trident
