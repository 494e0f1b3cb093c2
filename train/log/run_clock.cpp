#include "train/log/run_clock.h"

#include <fmt/core.h>

namespace trident {

std::string RunClock::stamped(std::string object) const {
  object.pop_back();
  return fmt::format("{},\"time\":{:.3f},\"elapsed_s\":{:.3f}}}\n", object, unix_seconds(), elapsed());
}

}  // namespace trident
