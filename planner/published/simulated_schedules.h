// Schedules that can be simulated. gpipe, 1f1b and interleaved are the trainer's own (pipeline/schedule/schedule_generators.h);
// the others the trainer does not run yet.
//
// Sources: zb-h1, zb-h2, zb-1p, zb-2p: Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241); zb-v, v-half, v-min:
// Qi et al. 2024, "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "planner/published/placed_schedule.h"

namespace trident {

enum class SimulatedKind : std::uint8_t { kGpipe, k1f1b, kInterleaved, kZbH1, kZbH2, kZb1p, kZb2p, kZbV, kVHalf, kVMin };

// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb-v", "v-half", "v-min"; interleaved also with "1f1b"
// before or behind it, as tables write it.
std::optional<SimulatedKind> parse_simulated_kind(std::string_view text);
std::string_view to_string(SimulatedKind kind);

// Their orders depend on the passes' times: weight gradients go where ranks would wait.
bool depends_on_times(SimulatedKind kind);
// Into input and weight gradients.
bool splits_backwards(SimulatedKind kind);
// Two stages on every rank, as a V.
bool is_v_shaped(SimulatedKind kind);

struct SimulatedSchedule {
  PlacedSchedule placed;
  double weight_share = 1;  // that memory was counted with, see peak_activations
};

// This part of a micro-batch's activations is left for its weight gradient when the input gradient is done, in zb-1p and zb-2p: 32
// of 34 + 5as/h bytes per element (Qi et al., Korthikanti et al. 2022), as/h = 8, the scores of 16-bit attention that is not fused,
// at 1,024 tokens and heads of 128. The published tables were made with such layers.
inline constexpr double kUnfusedWeightShare = 32.0 / (34.0 + 5.0 * 8.0);

// The orders of `num_ranks` ranks with `num_chunks` virtual stages each, `times` of the virtual stages. What depends on times is
// found by trying some thirty variants in fixed order; the shortest largest span wins, the first among equals.
//
// - zb-h1: as many in flight as 1f1b. On rank r weight gradients lag r micro-batches behind input gradients.
// - zb-h2: 2(p-r)-1 forwards first, weight gradients 2r behind.
// - zb-1p, zb-2p: the best found with 1 or 2 times 1f1b's memory; the papers' are found by search, too, and the time is an upper
//   bound of what is possible, not that of one known order.
// - zb-v, v-half, v-min: memory of 1, about 1/2 and about 1/3 of 1f1b's.
//
// Throws ConfigError for degrees that a schedule does not have: chunks, micro-batches that p does not divide (interleaved).
SimulatedSchedule make_simulated_schedule(SimulatedKind kind, int num_ranks, int num_chunks, int num_micro_batches,
                                          const StageTimes& times);

}  // namespace trident
