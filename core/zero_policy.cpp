#include "core/zero_policy.h"

namespace trident {

ZeroPolicy policy_of(ZeroPreset preset) {
  switch (preset) {
    case ZeroPreset::kDdp: return {preset, false, 0, ParamGather::kResident};
    case ZeroPreset::kZero1: return {preset, true, 0, ParamGather::kResident};
    case ZeroPreset::kZero2: return {preset, true, 1, ParamGather::kResident};
    case ZeroPreset::kShardGradOp: return {preset, true, 1, ParamGather::kPerMicroBatch};
    case ZeroPreset::kZero3: return {preset, true, 1, ParamGather::kPerUse};
  }
  return {};
}

}  // namespace trident
