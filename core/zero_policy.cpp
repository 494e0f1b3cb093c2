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

std::optional<ZeroPreset> parse_zero_preset(std::string_view text) {
  if (text == "ddp") return ZeroPreset::kDdp;
  if (text == "zero1") return ZeroPreset::kZero1;
  if (text == "zero2") return ZeroPreset::kZero2;
  if (text == "shard_grad_op" || text == "SHARD_GRAD_OP") return ZeroPreset::kShardGradOp;
  if (text == "zero3" || text == "FULL_SHARD") return ZeroPreset::kZero3;
  return std::nullopt;
}

std::string_view to_string(ZeroPreset preset) {
  switch (preset) {
    case ZeroPreset::kDdp: return "ddp";
    case ZeroPreset::kZero1: return "zero1";
    case ZeroPreset::kZero2: return "zero2";
    case ZeroPreset::kShardGradOp: return "shard_grad_op";
    case ZeroPreset::kZero3: return "zero3";
  }
  return "?";
}

std::string_view to_string(ParamGather gather) {
  switch (gather) {
    case ParamGather::kResident: return "resident";
    case ParamGather::kPerMicroBatch: return "per_micro_batch";
    case ParamGather::kPerUse: return "per_use";
  }
  return "?";
}

std::optional<ParamGather> parse_param_gather(std::string_view text) {
  if (text == "resident") return ParamGather::kResident;
  if (text == "per_micro_batch") return ParamGather::kPerMicroBatch;
  if (text == "per_use") return ParamGather::kPerUse;
  return std::nullopt;
}

}  // namespace trident
