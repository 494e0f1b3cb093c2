#include "parallel/cuda/nccl_options.h"

namespace trident {

NcclTraffic nccl_traffic_of(std::string_view group) {
  const bool sends = group.starts_with("pp") || group.starts_with("cp");
  return {.max_ctas = 0, .messages = sends ? NcclTraffic::Messages::kNeighbours : NcclTraffic::Messages::kRare};
}

NcclOptions nccl_options(const CudaOptions& chosen) {
  NcclOptions options;
  options.traffic = [most = static_cast<int>(chosen.nccl_max_ctas)](std::string_view group) {
    NcclTraffic traffic = nccl_traffic_of(group);
    traffic.max_ctas = most;
    return traffic;
  };
  options.timeout_seconds = chosen.nccl_timeout;
  return options;
}

}  // namespace trident
