#include "parallel/cuda/nccl_options.h"

#include "core/check.h"

namespace trident {

namespace {

NcclTraffic traffic_along(Axis axis, const NcclMaxCtas& most) {
  using Messages = NcclTraffic::Messages;
  switch (axis) {
    case Axis::kTensor: return {static_cast<int>(most.tensor), Messages::kRare};
    case Axis::kContext: return {0, Messages::kNeighbours};
    case Axis::kData: return {static_cast<int>(most.data), Messages::kRare};
    case Axis::kPipeline: return {static_cast<int>(most.pipeline), Messages::kNeighbours};
  }
  throw InternalError("an axis that does not exist");
}

}  // namespace

NcclOptions nccl_options(Axis axis, const CudaOptions& chosen) {
  return {.traffic = traffic_along(axis, chosen.nccl_max_ctas), .timeout_seconds = chosen.nccl_timeout};
}

}  // namespace trident
