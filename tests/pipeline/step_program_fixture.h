// Small step programs for the tests of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/schedule/partition.h"
#include "pipeline/schedule/schedule_generators.h"
#include "pipeline/schedule/step_program.h"

namespace trident {

// `blocks_per_stage` equal blocks on each virtual stage.
inline StepProgramSpec small_spec(const Schedule& schedule, ZeroPreset preset, EmbeddingTie tie = EmbeddingTie::kUntied,
                                  int blocks_per_stage = 1) {
  StepProgramSpec spec;
  spec.schedule = schedule;
  const std::vector<std::int64_t> layers(static_cast<std::size_t>(schedule.num_virtual_stages()), blocks_per_stage);
  spec.units_of_stage =
      partition_explicit(layers, blocks_per_stage * schedule.num_virtual_stages(), schedule.num_ranks, schedule.num_chunks);
  spec.zero = policy_of(preset);
  spec.data_parallel = 2;
  spec.tie = tie;
  return spec;
}

inline std::string to_text(const std::vector<StepProgram>& programs) {
  std::string text;
  for (const StepProgram& program : programs) text += to_text(program);
  return text;
}

inline constexpr ZeroPreset kAllPresets[] = {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kShardGradOp,
                                             ZeroPreset::kZero3};

}  // namespace trident
