// A simulated step as the timeline of a report.
#pragma once

#include <cstddef>
#include <optional>

#include "planner/predict/forecast.h"
#include "report/span_kinds.h"
#include "report/timeline_data.h"

namespace trident {

// What a span of an instruction is of, and in which lane it lies, simulated or measured. Nothing for instructions that have none.
std::optional<SpanKind> span_kind(const Instruction& instruction, int stages);
TimelineLane lane_of(SpanKind kind);

// A row for each pipeline stage: above what its rank computes, below its gathers and reductions. More than so many computes: those
// that follow each other for one micro-batch of a virtual stage are one span.
inline constexpr std::size_t kMostTimelineSpans = 60'000;
Timeline timeline_of(const RunPlan& plan, const Forecast& forecast, std::size_t most_spans = kMostTimelineSpans);

}  // namespace trident
