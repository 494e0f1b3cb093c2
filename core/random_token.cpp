#include "core/random_token.h"

#include <fmt/core.h>

#include <random>

namespace trident {

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace trident
