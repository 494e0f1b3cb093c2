// ZeRO as three independent policies with named presets (docs/design/communication.md has the bytes).
//
// P parameters of a (tp, pp) rank, N = dp x cp ranks that share them, m micro-batches a step.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/named_enum.h"

namespace trident {

enum class ZeroPreset : std::uint8_t { kDdp, kZero1, kZero2, kShardGradOp, kZero3 };
template <>
inline constexpr std::array<std::string_view, 5> kNamesOf<ZeroPreset>{"ddp", "zero1", "zero2", "shard_grad_op", "zero3"};

// When a unit's compute-dtype parameters are complete on a rank.
enum class ParamGather : std::uint8_t {
  kResident,       // always; gathered once after the optimizer step
  kPerMicroBatch,  // gathered for a forward unless a micro-batch in flight holds them; freed after its last holder's backward
  kPerUse,         // gathered before every forward and every backward, freed after it
};
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<ParamGather>{"resident", "per_micro_batch", "per_use"};

struct ZeroPolicy {
  ZeroPreset preset = ZeroPreset::kZero1;
  bool shard_optimizer = true;  // fp32 master and moments: 1/N per rank, or everything everywhere (ddp)
  // Gradients are reduced over dp after every `grad_sync_every`-th micro-batch; 0 = once, after the last one.
  std::int64_t grad_sync_every = 0;
  ParamGather param_gather = ParamGather::kResident;

  bool operator==(const ZeroPolicy&) const = default;
};

// The policy a preset stands for: ddp, zero1: sync once, resident; zero2: sync every micro-batch, resident;
// shard_grad_op: zero2 with per_micro_batch gathers; zero3: zero2 with per_use gathers.
ZeroPolicy policy_of(ZeroPreset preset);

}  // namespace trident
