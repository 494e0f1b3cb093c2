// The name of the machine that this process runs on, for messages and file names.
#pragma once

#include <string>

namespace trident {

// As the kernel has it, without spaces; "unknown-host" where it has none.
std::string host_name();

}  // namespace trident
