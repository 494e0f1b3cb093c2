#include "core/host_name.h"

#include <unistd.h>

#include <array>
#include <climits>

namespace trident {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "unknown-host";
}

}  // namespace trident
