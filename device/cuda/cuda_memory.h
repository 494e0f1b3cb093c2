// Memory of a CUDA device, and host memory that it can copy to and from while the host goes on.
#pragma once

#include <cstdint>
#include <string>

#include "device/buffer.h"

namespace trident {

// `bytes` of device memory, zero-filled, aligned to 256 bytes. Throws ConfigError naming `name`, the sizes and what would make it
// fit when the device has no room, and InternalError inside a NoAllocationScope.
Buffer allocate_cuda(int device, std::int64_t bytes, const std::string& name);

// Page-locked host memory, zero-filled, aligned to 256 bytes, usable with every device. Errors as above.
Buffer allocate_pinned(std::int64_t bytes, const std::string& name);

}  // namespace trident
