// The profile of this machine's processors that `trident bench --calibrate` measured and kept for the user.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/price/cpu_rates.h"

namespace trident {

// Its name, as clusters have names.
inline constexpr std::string_view kThisMachine = "this-machine";

// The file of this processor, where ranks keep `cores` busy, and of this version: below XDG_CACHE_HOME, or else ~/.cache. Empty
// where neither is known.
std::string kept_profile_path(int cores);

// Reads that file; nothing where there is none. ConfigError: it is no profile.
std::optional<CpuRates> kept_cpu_rates(int cores);

}  // namespace trident
