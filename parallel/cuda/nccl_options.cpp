#include "parallel/cuda/nccl_options.h"

namespace trident {

NcclTraffic nccl_traffic_of(std::string_view group) {
  const bool sends = group.starts_with("pp") || group.starts_with("cp");
  return {.max_ctas = 0, .messages = sends ? NcclTraffic::Messages::kNeighbours : NcclTraffic::Messages::kRare};
}

}  // namespace trident
