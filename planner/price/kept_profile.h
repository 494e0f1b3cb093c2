// The profile of this machine's processors that `trident bench --calibrate` measured and kept for the user.
#pragma once

#include <optional>
#include <string>

#include "planner/price/cpu_rates.h"

namespace trident {

// The file of this processor, where ranks keep `cores` busy, and of this version: below XDG_CACHE_HOME, or else ~/.cache. Empty
// where neither is known.
std::string kept_profile_path(int cores);

// Reads that file; nothing where there is none. ConfigError: it is no profile.
std::optional<CpuRates> kept_cpu_rates(int cores);

}  // namespace trident
