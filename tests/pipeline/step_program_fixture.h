// Small step programs for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/schedule/partition.h"
#include "pipeline/schedule/schedule_generators.h"
#include "pipeline/schedule/step_program.h"
#include "pipeline/schedule/step_program_check.h"
#include "tests/support/error_text.h"

namespace trident {

inline constexpr bool kUntied = false, kTied = true;

// `blocks_per_stage` equal blocks on each virtual stage.
inline StepProgramSpec small_spec(const Schedule& schedule, ZeroPreset preset, bool tied = kUntied,
                                  int blocks_per_stage = 1) {
  StepProgramSpec spec;
  spec.schedule = schedule;
  const std::vector<std::int64_t> layers(static_cast<std::size_t>(schedule.num_virtual_stages()), blocks_per_stage);
  spec.units_of_stage =
      partition_explicit(layers, blocks_per_stage * schedule.num_virtual_stages(), schedule.num_ranks, schedule.num_chunks);
  spec.zero = policy_of(preset);
  spec.data_parallel = 2;
  spec.tied = tied;
  return spec;
}

// First line "p=2 v=1 m=4", then one line per rank: "0F0 0F1 0B0 ...".
inline std::string to_text(const Schedule& schedule) {
  std::string text =
      fmt::format("p={} v={} m={}\n", schedule.num_ranks, schedule.num_chunks, schedule.num_micro_batches);
  for (const auto& actions : schedule.ranks) {
    std::string_view separator = "";
    for (const Action& action : actions) {
      text.append(separator).append(to_string(action));
      separator = " ";
    }
    text += '\n';
  }
  return text;
}

// Reads what to_text() writes.
inline Schedule parse_schedule(const std::string& text) {
  Schedule schedule;
  std::istringstream lines(text);
  std::string line, word;
  std::getline(lines, line);
  EXPECT_EQ(std::sscanf(line.c_str(), "p=%d v=%d m=%d", &schedule.num_ranks, &schedule.num_chunks, &schedule.num_micro_batches), 3);
  while (std::getline(lines, line)) {
    std::vector<Action>& actions = schedule.ranks.emplace_back();
    for (std::istringstream words(line); words >> word;) {
      Action action;
      char kind = '?';
      EXPECT_EQ(std::sscanf(word.c_str(), "%d%c%d", &action.virtual_stage, &kind, &action.micro_batch), 3) << word;
      action.kind = static_cast<ActionKind>(std::string_view("FBIW").find(kind));
      actions.push_back(action);
    }
  }
  return schedule;
}

// The checker says of the programs of a schedule "no error" where every pass is there, on its rank, in its order, and nobody
// waits for ever.
inline std::string fault_of_programs(const Schedule& schedule) {
  const StepProgramSpec spec = small_spec(schedule, ZeroPreset::kDdp);
  return error_of<InternalError>([&] { check_step_programs(build_step_programs(spec), spec); });
}

inline std::string to_text(const std::vector<StepProgram>& programs) {
  std::string text;
  for (const StepProgram& program : programs) text += to_text(program);
  return text;
}

inline constexpr ZeroPreset kAllPresets[] = {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kShardGradOp,
                                             ZeroPreset::kZero3};

}  // namespace trident
