// The schedules a user can ask for. All of them run the backwards of a virtual stage in ascending micro-batch order, so that
// weight gradients are summed in one order whatever the schedule: schedules agree bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/named_enum.h"
#include "pipeline/schedule/schedule.h"

namespace trident {

enum class ScheduleKind : std::uint8_t { kGpipe, k1f1b, kInterleaved };
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<ScheduleKind>{"gpipe", "1f1b", "interleaved"};

// All forwards, then all backwards. Bubble over ideal (p-1)/m; every micro-batch is in flight at once.
// Huang et al., "GPipe", 2019.
Schedule make_gpipe(int num_ranks, int num_micro_batches);

// min(m, p-r-1) warm-up forwards on rank r, then one forward, one backward, then the rest of the backwards.
// The same bubble as GPipe, but at most p-r micro-batches in flight. Narayanan et al., PipeDream-Flush, 2021.
// p = 1 is gradient accumulation: F B F B.
Schedule make_1f1b(int num_ranks, int num_micro_batches);

// 1F1B over v chunks per rank, micro-batches in groups of p; min(mv, 2(p-r-1) + (v-1)p) warm-up forwards. Bubble over ideal
// (p-1)/(vm). Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, section 2.2.2.
// Throws ConfigError unless p divides m.
Schedule make_interleaved(int num_ranks, int num_chunks, int num_micro_batches);

// Evaluation: the forwards of the interleaved order; any m (the last group of micro-batches may be short).
Schedule make_forward_only(int num_ranks, int num_chunks, int num_micro_batches);

// By kind. Throws ConfigError naming `parallel.virtual_stages` if more than one chunk is asked of gpipe or 1f1b.
Schedule make_schedule(ScheduleKind kind, int num_ranks, int num_chunks, int num_micro_batches);

}  // namespace trident
