#include "parallel/cuda_backend.h"

namespace trident {

std::string_view to_string(DeviceTransport transport) {
  switch (transport) {
    case DeviceTransport::kThread: return "between threads on the device";
    case DeviceTransport::kHostStaged: return "through pinned host memory";
    case DeviceTransport::kNccl: return "by NCCL";
  }
  return "?";
}

}  // namespace trident
